package identity

import (
	"context"
	"crypto/x509"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

const (
	lookEvery  = 10 * time.Second // at files, also where nobody connects
	warnEvery  = 24 * time.Hour   // while a certificate is about to end
	errorEvery = time.Hour        // once it has ended
)

// Watched is a certificate that is looked at now and then: a *Source or a *Shown.
type Watched interface{ look() }

// Watch looks for new files of certificates every 10 seconds until the context ends, so that the
// log says when one is about to end, and that it has, also where nobody connects.
func Watch(ctx context.Context, all ...Watched) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		for _, w := range all {
			w.look()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// ending tells a log when a certificate is in the last tenth of its life, where whoever renews it
// should long have done so, and when it has ended.
type ending struct {
	leaf *x509.Certificate
	over bool      // that it has ended was said
	said time.Time // zero: nothing was
}

// tell says it of the certificate that is in use now. of are what tells it from others.
func (e *ending) tell(log *zap.Logger, leaf *x509.Certificate, of ...zap.Field) {
	if e.leaf != leaf {
		*e = ending{leaf: leaf}
	}
	left, since := time.Until(leaf.NotAfter), time.Since(e.said)
	switch {
	case left <= 0 && (!e.over || since >= errorEvery):
		log.Error("the certificate has ended, and nobody accepts it any more; replace it", append(of, until(leaf))...)
		e.over = true
	case left > 0 && left < leaf.NotAfter.Sub(leaf.NotBefore)/10 && since >= warnEvery:
		log.Warn("the certificate ends soon, and none was laid in its place", append(of, until(leaf))...)
	default:
		return
	}
	e.said = time.Now()
}

// until tells a log when a certificate ends. It is a text, because a log on a console shows no date of a time.
func until(leaf *x509.Certificate) zap.Field {
	return zap.String("until", leaf.NotAfter.Format(time.RFC3339))
}

// measure tells a meter for how long a certificate is still valid. Those of a process share the
// gauge, and differ in what they are of.
func measure(meter metric.Meter, current func() *x509.Certificate, of ...attribute.KeyValue) error {
	gauge, err := meter.Float64ObservableGauge("troupe.certificate.remaining",
		metric.WithUnit("s"), metric.WithDescription("For how long a certificate of this process is still valid."))
	if err != nil {
		return err
	}
	apart := metric.WithAttributes(of...)
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error { // the gauge would take that of the first alone
		o.ObserveFloat64(gauge, time.Until(current().NotAfter).Seconds(), apart)
		return nil
	}, gauge)
	return err
}
