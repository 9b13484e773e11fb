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
	refreshInterval = 10 * time.Second // interval of reading the files without any connection
	warnInterval    = 24 * time.Hour   // interval of warnings while a certificate is about to expire
	errorInterval   = time.Hour        // interval of errors after it expired
)

// Refreshable is a source of certificates that WatchCertificates refreshes: a *Source or an *EdgeSource.
type Refreshable interface{ refresh() }

// WatchCertificates rereads certificate files every 10 seconds until ctx ends. A certificate that has expired or
// is about to expire is therefore logged even if no connection is made.
func WatchCertificates(ctx context.Context, all ...Refreshable) {
	ticker := time.NewTicker(refreshInterval)
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

// expiryLog logs a warning in the last tenth of a certificate's validity, when it should have been renewed, and an
// error after the certificate has expired.
type expiryLog struct {
	leaf          *x509.Certificate
	expiredLogged bool      // whether the expiry was logged
	lastLogged    time.Time // time of the last message (zero if none)
}

// logExpiry logs the expiry of the current certificate, if a message is due. The fields identify the certificate.
func (e *expiryLog) logExpiry(log *zap.Logger, leaf *x509.Certificate, of ...zap.Field) {
	if e.leaf != leaf {
		*e = expiryLog{leaf: leaf}
	}
	left, since := time.Until(leaf.NotAfter), time.Since(e.lastLogged)
	switch {
	case left <= 0 && (!e.expiredLogged || since >= errorInterval):
		log.Error("the certificate has expired and every peer rejects it; replace it", append(of, expiryField(leaf))...)
		e.expiredLogged = true
	case left > 0 && left < leaf.NotAfter.Sub(leaf.NotBefore)/10 && since >= warnInterval:
		log.Warn("the certificate expires soon and was not replaced; renew it", append(of, expiryField(leaf))...)
	default:
		return
	}
	e.lastLogged = time.Now()
}

// expiryField returns the log field with the expiry of a certificate. It formats the time as text, because a
// console log prints times without the date.
func expiryField(leaf *x509.Certificate) zap.Field {
	return zap.String("until", leaf.NotAfter.Format(time.RFC3339))
}

// registerValidityGauge registers the gauge of the remaining validity of a certificate. All certificates of a
// process share the gauge and differ in its attributes.
func registerValidityGauge(meter metric.Meter, current func() *x509.Certificate, of ...attribute.KeyValue) error {
	gauge, err := meter.Float64ObservableGauge("troupe.certificate.remaining",
		metric.WithUnit("s"), metric.WithDescription("For how long a certificate of this process is still valid."))
	if err != nil {
		return err
	}
	attributes := metric.WithAttributes(of...)
	// a callback in the gauge's options would be registered only once for all certificates
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveFloat64(gauge, time.Until(current().NotAfter).Seconds(), attributes)
		return nil
	}, gauge)
	return err
}
