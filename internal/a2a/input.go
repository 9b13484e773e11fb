package a2a

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// addInput adds the content of a message to a turn request: either its texts and files, or the answers in its data
// part.
func addInput(turn *troupev1.OrchestrateRequest, m *a2a.Message) error {
	var texts []string
	var answers *troupev1.Answers
	for _, p := range m.Parts {
		var err error
		switch c := p.Content.(type) {
		case a2a.Text:
			texts = append(texts, string(c))
		case a2a.Data:
			if answers != nil {
				return a2a.NewError(a2a.ErrInvalidParams, "message.parts: put all answers into one data part")
			}
			answers, err = parseAnswers(c.Value)
		case a2a.Raw:
			turn.Parts = append(turn.Parts, newFilePart(p, c, len(turn.GetParts())+1))
		default:
			err = a2a.NewError(a2a.ErrUnsupportedContentType, "message.parts: nothing is fetched from a url; send the bytes of the file, at most 1 MiB")
		}
		if err != nil {
			return err
		}
	}
	switch text := strings.Join(texts, "\n"); {
	case answers == nil && text == "" && len(turn.GetParts()) > 0: // files without text are enough
	case answers == nil:
		turn.Input = &troupev1.OrchestrateRequest_Text{Text: text}
	case strings.TrimSpace(text) == "" && len(turn.GetParts()) == 0:
		turn.Input = &troupev1.OrchestrateRequest_Answers{Answers: answers}
	default:
		return a2a.NewError(a2a.ErrInvalidParams, "message.parts: send answers alone, or a text and files; a text or file abandons the waiting calls")
	}
	return nil
}

// newFilePart returns the message part for a file. A file without a name is named by its position among the files
// of the message.
func newFilePart(p *a2a.Part, data []byte, number int) *troupev1.Part {
	name := cmp.Or(p.Filename, "file-"+strconv.Itoa(number))
	return &troupev1.Part{Content: &troupev1.Part_Blob{Blob: &troupev1.Blob{Name: name, MediaType: p.MediaType, Data: data}}}
}

// parentFromReferences returns the parent of a turn: the first task referenced in the message whose id has the
// form used by the mesh. It returns nil if there is none.
func parentFromReferences(m *a2a.Message) *troupev1.Parent {
	for _, id := range m.ReferenceTasks {
		if taskIDPattern.MatchString(string(id)) {
			return &troupev1.Parent{TraceId: string(id)}
		}
	}
	return nil
}

// withoutSecrets returns the message m as a task shows it. If its turn brings answers, it has only their ids, verdicts and
// texts, and no sealed credentials (LP-37).
func withoutSecrets(m *a2a.Message, turn *troupev1.OrchestrateRequest) *a2a.Message {
	if turn.GetAnswers() == nil {
		return m
	}
	said := []itemData{}
	for _, a := range turn.GetAnswers().GetAnswers() {
		said = append(said, itemData{"id": a.GetId(), "verdict": verdictName(a), "text": a.GetText()})
	}
	own := *m
	own.Parts = a2a.ContentParts{a2a.NewDataPart(itemData{"answers": said})}
	return &own
}

// callAnswer is the JSON form of a client's answer to a pending call.
type callAnswer struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict"`
	Text    string `json:"text"`
	Sealed  []byte `json:"sealed"` // the sealed credential for a call that needs one, in base64
}

const wantAnswers = `message.parts: want {"answers":[{"id":"…","verdict":"approve","text":""}]}; verdict is approve, deny or stop, "+
	"and succeed or fail for a tool that runs at the client; a call that needs auth takes "sealed" with approve, as base64`

func parseAnswers(value any) (*troupev1.Answers, error) {
	var said struct {
		Answers []callAnswer `json:"answers"`
	}
	text, err := json.Marshal(value)
	if err == nil {
		read := json.NewDecoder(bytes.NewReader(text))
		read.DisallowUnknownFields()
		err = read.Decode(&said)
	}
	if err != nil || len(said.Answers) == 0 {
		return nil, a2a.NewError(a2a.ErrInvalidParams, wantAnswers)
	}
	answers := &troupev1.Answers{}
	for _, r := range said.Answers {
		verdict := troupev1.CallVerdict_value["CALL_VERDICT_"+strings.ToUpper(r.Verdict)]
		if verdict == 0 {
			return nil, a2a.NewError(a2a.ErrInvalidParams, wantAnswers)
		}
		answers.Answers = append(answers.Answers, &troupev1.CallAnswer{Id: r.ID, Verdict: troupev1.CallVerdict(verdict), Text: r.Text, Sealed: r.Sealed})
	}
	return answers, nil
}
