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
	refreshEvery = 10 * time.Second // interval of reading the files without any connection
	warnEvery    = 24 * time.Hour   // interval of warnings while a certificate is about to expire
	errorEvery   = time.Hour        // interval of errors after it expired
)

// Refreshable is a certificate that Watch refreshes: a *Source or an *EdgeSource.
type Refreshable interface{ refresh() }

// Watch rereads certificate files every 10 seconds until the context ends. So a certificate that is about to
// expire, or that has expired, is logged even if no connection is made.
func Watch(ctx context.Context, all ...Refreshable) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		for _, w := range all {
			w.refresh()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// expiryLog logs a warning in the last tenth of a certificate's life, when it should long have been renewed,
// and an error after it expired.
type expiryLog struct {
	leaf          *x509.Certificate
	expiredLogged bool      // the expiry was logged
	lastLogged    time.Time // (zero if nothing was logged)
}

// logExpiry logs the expiry of the certificate in use, if it is due. The fields identify the certificate.
func (e *expiryLog) logExpiry(log *zap.Logger, leaf *x509.Certificate, of ...zap.Field) {
	if e.leaf != leaf {
		*e = expiryLog{leaf: leaf}
	}
	left, since := time.Until(leaf.NotAfter), time.Since(e.lastLogged)
	switch {
	case left <= 0 && (!e.expiredLogged || since >= errorEvery):
		log.Error("the certificate has expired and every peer rejects it; replace it", append(of, untilField(leaf))...)
		e.expiredLogged = true
	case left > 0 && left < leaf.NotAfter.Sub(leaf.NotBefore)/10 && since >= warnEvery:
		log.Warn("the certificate expires soon and was not replaced; renew it", append(of, untilField(leaf))...)
	default:
		return
	}
	e.lastLogged = time.Now()
}

// untilField returns the log field with the expiry of a certificate. It is a text, because a console log prints
// times without the date.
func untilField(leaf *x509.Certificate) zap.Field {
	return zap.String("until", leaf.NotAfter.Format(time.RFC3339))
}

// registerRemaining registers the gauge of the remaining validity of a certificate. All certificates of a
// process share the gauge; the attributes tell them apart.
func registerRemaining(meter metric.Meter, current func() *x509.Certificate, of ...attribute.KeyValue) error {
	gauge, err := meter.Float64ObservableGauge("troupe.certificate.remaining",
		metric.WithUnit("s"), metric.WithDescription("For how long a certificate of this process is still valid."))
	if err != nil {
		return err
	}
	attributes := metric.WithAttributes(of...)
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error { // a callback in the gauge's options would be registered once only
		o.ObserveFloat64(gauge, time.Until(current().NotAfter).Seconds(), attributes)
		return nil
	}, gauge)
	return err
}
