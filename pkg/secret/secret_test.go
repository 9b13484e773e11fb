package secret_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/pkg/secret"
)

const canaryText = "CANARY-7f3a"

type secretHolder struct {
	Token     secret.Value
	Pointer   *secret.Value
	Map       map[string]secret.Value
	Slice     []secret.Value
	Any       any
	hidden    secret.Value
	hiddenMap map[string]secret.Value
}

// secretsInShapes returns values that contain a secret in different ways, by name.
func secretsInShapes() map[string]any {
	v := secret.New(canaryText)
	all := secretHolder{v, &v, map[string]secret.Value{"k": v}, []secret.Value{v}, v, v, map[string]secret.Value{"k": v}}
	return map[string]any{
		"value": v, "pointer": &v, "map": all.Map, "slice": all.Slice, "array": [1]secret.Value{v},
		"struct": all, "struct pointer": &all, "any": []any{v, all}, "only hidden": struct{ v secret.Value }{v},
	}
}

// requireHidden checks that a printed text does not contain the secret, in any encoding that the format verbs
// produce.
func requireHidden(t *testing.T, made string) {
	t.Helper()
	require.NotContains(t, made, canaryText)
	require.NotContains(t, made, fmt.Sprintf("%x", canaryText))
	require.NotContains(t, made, fmt.Sprintf("%X", canaryText))
	require.NotContains(t, made, fmt.Sprintf("% x", canaryText))
	require.NotContains(t, made, "67 65 78 65 82 89", "the bytes of CANARY")
}

func TestValue_CannotBePrinted(t *testing.T) {
	for name, shape := range secretsInShapes() {
		for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%x", "%X", "% x", "%s", "%d", "%t", "%10.3s"} {
			made := fmt.Sprintf(verb, shape)
			requireHidden(t, made)
			if name == "value" {
				require.Equal(t, secret.Redacted, made, verb)
			}
		}
		requireHidden(t, fmt.Sprint(shape)+fmt.Sprintf("%p %T", shape, shape))
		require.NotContains(t, fmt.Errorf("it failed: %v", shape).Error(), canaryText, name)
	}
	require.Equal(t, secret.Redacted, secret.New(canaryText).String())
	require.Equal(t, secret.Redacted, secret.New(canaryText).GoString())
	require.Equal(t, secret.Redacted, fmt.Sprint(secret.Value{}), "it does not tell that it is empty")
}

func TestValue_CannotBeEncoded(t *testing.T) {
	encoders := map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal}
	for name, encode := range encoders {
		for shape, v := range secretsInShapes() {
			made, err := encode(v)
			require.NoError(t, err)
			requireHidden(t, string(made))
			if shape != "only hidden" {
				require.Contains(t, string(made), secret.Redacted, "%s of %s", name, shape)
			}
		}
	}
	made, err := xml.Marshal(struct {
		XMLName xml.Name
		Token   secret.Value
	}{Token: secret.New(canaryText), XMLName: xml.Name{Local: "it"}})
	require.NoError(t, err)
	requireHidden(t, string(made))
}

func TestValue_CannotBeLogged(t *testing.T) {
	for name, v := range secretsInShapes() {
		var out bytes.Buffer
		slog.New(slog.NewJSONHandler(&out, nil)).Info("it", "key", v)
		slog.New(slog.NewTextHandler(&out, nil)).Info("it", "key", v)
		for _, encoder := range []zapcore.Encoder{
			zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
		} {
			log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.DebugLevel))
			log.Info("it", zap.Any("any", v), zap.Reflect("reflect", v))
			log.Sugar().Infow("it", "key", v)
			log.Sugar().Infof("it: %+v", v)
		}
		requireHidden(t, out.String())
		if name == "value" {
			require.GreaterOrEqual(t, bytes.Count(out.Bytes(), []byte(secret.Redacted)), 10)
		}
	}
}

func TestValue_RevealReturnsText(t *testing.T) {
	require.Equal(t, canaryText, secret.New(canaryText).Reveal())
	require.Empty(t, secret.Value{}.Reveal())
	require.True(t, secret.New(canaryText).Equal(secret.New(canaryText)))
	require.True(t, secret.New("").Equal(secret.Value{}))
	require.False(t, secret.New(canaryText).Equal(secret.New(canaryText+"0")))
}

// Wipe clears the text in all copies of a Value. A text that Reveal returned earlier stays.
func TestValue_WipeClearsAllCopies(t *testing.T) {
	v := secret.New(canaryText)
	all := []secret.Value{v, v}
	inside := secret.Bytes(v)
	require.Equal(t, canaryText, string(inside))
	shown := v.Reveal()
	all[1].Wipe()
	require.Equal(t, canaryText, shown)
	require.Equal(t, make([]byte, len(canaryText)), inside)
	for _, copied := range all {
		require.Empty(t, copied.Reveal())
		require.Equal(t, secret.Redacted, copied.String())
		copied.Wipe()
	}
	secret.Value{}.Wipe()

	v = secret.New(canaryText)
	var both sync.WaitGroup
	both.Go(v.Wipe)
	both.Go(func() { require.Contains(t, []string{"", canaryText}, v.Reveal()) })
	both.Wait()
}
