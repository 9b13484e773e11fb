package telemetry

import (
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/troupe-dev/troupe/internal/telemetry/structured"
)

// redacting is a core that shows no text under a key that sounds like a secret, whoever logs it
// (contract OC-30). Numbers, times and booleans are no secrets: tokens are also what models are
// paid by.
type redacting struct{ zapcore.Core }

func (r redacting) With(fields []zapcore.Field) zapcore.Core {
	return redacting{r.Core.With(redacted(fields))}
}

func (r redacting) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if r.Enabled(e.Level) {
		return checked.AddCore(e, r)
	}
	return checked
}

func (r redacting) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return r.Core.Write(e, redacted(fields))
}

// redacted are the fields as they may be written. Those of a caller are never changed.
func redacted(fields []zapcore.Field) []zapcore.Field {
	var own []zapcore.Field
	for i, f := range fields {
		shown, same := show(f)
		if same {
			continue
		}
		if own == nil {
			own = slices.Clone(fields)
		}
		own[i] = shown
	}
	if own == nil {
		return fields
	}
	return own
}

// show is a field as it may be written, and whether it is the same.
func show(f zapcore.Field) (shown zapcore.Field, same bool) {
	switch f.Type {
	case zapcore.StringType, zapcore.ByteStringType, zapcore.BinaryType, zapcore.StringerType, zapcore.ErrorType,
		zapcore.ReflectType, zapcore.ArrayMarshalerType, zapcore.ObjectMarshalerType, zapcore.InlineMarshalerType:
	default:
		return f, true
	}
	if structured.IsSecret(f.Key) {
		return zap.String(f.Key, structured.Redacted), false
	}
	switch held := f.Interface.(type) {
	case map[string]any:
		return zap.Any(f.Key, structured.Redact(held)), false
	case map[string]string:
		data := make(map[string]any, len(held))
		for key, text := range held {
			data[key] = text
		}
		return zap.Any(f.Key, structured.Redact(data)), false
	default:
		return f, true
	}
}
