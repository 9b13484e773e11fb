package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
)

const (
	keysAge   = time.Hour        // after which they are fetched again, so that one that was withdrawn goes
	pause     = 10 * time.Second // between two fetches: tokens of invented keys must not make many
	pauseAge  = time.Minute      // likewise, when it is only their age
	fetchTime = 5 * time.Second
	maxAnswer = 1 << 20
)

// keys are those of an issuer, as it last said. While it is away they go on.
type keys struct {
	issuer string
	client *http.Client
	log    *zap.Logger
	now    func() time.Time

	known atomic.Pointer[keySet] // nil: none yet
	turn  chan struct{}          // holds one: who has it fetches
	tried time.Time              // with turn
}

type keySet struct {
	jose.JSONWebKeySet
	fetched time.Time
}

func newKeys(issuer string, client *http.Client, log *zap.Logger, now func() time.Time) *keys {
	k := &keys{issuer: issuer, client: client, log: log, now: now, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// key is that of the id. One that is not known is asked for, and one that has not been
// confirmed for long is, by one caller, while the others go on with it.
func (k *keys) key(ctx context.Context, id string) (jose.JSONWebKey, error) {
	known := k.known.Load()
	if key, ok := known.find(id); ok {
		if k.now().Sub(known.fetched) < keysAge {
			return key, nil
		}
		select {
		case <-k.turn:
			k.fetch(ctx, known, pauseAge)
		default:
		}
	} else {
		select {
		case <-k.turn:
			k.fetch(ctx, known, pause)
		case <-ctx.Done():
			return jose.JSONWebKey{}, ctx.Err()
		}
	}
	known = k.known.Load()
	if key, ok := known.find(id); ok {
		return key, nil
	}
	if known == nil {
		return jose.JSONWebKey{}, failure.New(failure.SystemNetwork, "authenticate", "the issuer of the token cannot be asked for its keys now; try again later")
	}
	return jose.JSONWebKey{}, refuse("the token is signed with a key that its issuer does not have")
}

// find is the one public key for signatures of an id.
func (s *keySet) find(id string) (jose.JSONWebKey, bool) {
	if s == nil {
		return jose.JSONWebKey{}, false
	}
	for _, key := range s.Key(id) {
		if key.Use != "enc" && key.IsPublic() && key.Valid() { // a key that is no secret of both sides
			return key, true
		}
	}
	return jose.JSONWebKey{}, false
}

// fetch asks the issuer for others than the keys that its caller knew, unless that was just
// done, and gives the turn back. The end of the caller's call does not end it, for others wait
// for the answer.
func (k *keys) fetch(ctx context.Context, known *keySet, pause time.Duration) {
	defer func() { k.turn <- struct{}{} }()
	if k.known.Load() != known || !k.tried.IsZero() && k.now().Sub(k.tried) < pause {
		return
	}
	k.tried = k.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	next, err := k.ask(ctx)
	if err != nil {
		k.log.Warn("the keys of the issuer cannot be fetched; going on with those that are known", zap.String("issuer", k.issuer), zap.Error(err))
		return
	}
	k.known.Store(&keySet{next, k.now()})
	k.log.Info("keys of the issuer", zap.String("issuer", k.issuer), zap.Int("keys", len(next.Keys)))
}

// ask looks where the issuer says that its keys are, and reads them.
func (k *keys) ask(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	var said struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration", &said); err != nil {
		return set, err
	}
	if said.Issuer != k.issuer {
		return set, fmt.Errorf("the issuer says that it is %q", said.Issuer)
	}
	if err := k.get(ctx, said.Keys, &set); err != nil {
		return set, err
	}
	if len(set.Keys) == 0 {
		return set, errors.New("the issuer has no keys")
	}
	return set, nil
}

func (k *keys) get(ctx context.Context, at string, into any) error {
	if u, err := url.Parse(at); err != nil || u.Scheme != "https" {
		return fmt.Errorf("%q is no https URL", at)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", at, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into)
}

// clientOf is a client that trusts the CA of the file; without one what the machine does. It
// keeps no connection: it is used once an hour.
func clientOf(ca string) (*http.Client, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if ca != "" {
		text, err := os.ReadFile(ca) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", ca)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the issuer must not send elsewhere")
	}}, nil
}
