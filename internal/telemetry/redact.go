package telemetry

import (
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/troupe-dev/troupe/internal/telemetry/structured"
)

// redactingCore is a zapcore.Core that redacts text under keys that look like the name of a secret (contract
// OC-30). It keeps numbers, times and booleans, because "tokens" is also the unit of model usage.
type redactingCore struct{ zapcore.Core }

func (r redactingCore) With(fields []zapcore.Field) zapcore.Core {
	return redactingCore{r.Core.With(redactFields(fields))}
}

func (r redactingCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if r.Enabled(e.Level) {
		return checked.AddCore(e, r)
	}
	return checked
}

func (r redactingCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return r.Core.Write(e, redactFields(fields))
}

// redactFields returns the fields with secrets redacted. It does not change the caller's slice.
func redactFields(fields []zapcore.Field) []zapcore.Field {
	var own []zapcore.Field
	for i, f := range fields {
		shown, same := redactField(f)
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

// redactField returns the field with secrets redacted. same is true if nothing in the field can be a secret.
func redactField(f zapcore.Field) (shown zapcore.Field, same bool) {
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
