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
	maxKeyAge        = time.Hour        // older keys are fetched again, so that withdrawn keys are removed
	fetchInterval    = 10 * time.Second // minimum between fetches, so that tokens with invented key ids cause only a few
	refreshInterval  = time.Minute      // minimum between fetches of keys that are merely old
	fetchTimeout     = 5 * time.Second
	maxResponseBytes = 1 << 20
)

// keyCache caches the signing keys of an issuer. While the issuer is unreachable, the last known keys remain in
// use.
type keyCache struct {
	issuer string
	client *http.Client
	log    *zap.Logger
	now    func() time.Time

	cached    atomic.Pointer[keySet] // nil before the first fetch
	fetchSlot chan struct{}          // holds one element; its receiver may fetch
	lastFetch time.Time              // guarded by fetchSlot
}

type keySet struct {
	jose.JSONWebKeySet
	fetched time.Time
}

func newKeyCache(issuer string, client *http.Client, log *zap.Logger, now func() time.Time) *keyCache {
	k := &keyCache{issuer: issuer, client: client, log: log, now: now, fetchSlot: make(chan struct{}, 1)}
	k.fetchSlot <- struct{}{}
	return k
}

// signingKey returns the signing key with the given id. It fetches the keys if the id is unknown. If the keys are
// old, one caller refreshes them while the others use the cached ones.
func (k *keyCache) signingKey(ctx context.Context, id string) (jose.JSONWebKey, error) {
	known := k.cached.Load()
	if key, ok := known.findKey(id); ok {
		if k.now().Sub(known.fetched) < maxKeyAge {
			return key, nil
		}
		select {
		case <-k.fetchSlot:
			k.fetch(ctx, known, refreshInterval)
		default:
		}
	} else {
		select {
		case <-k.fetchSlot:
			k.fetch(ctx, known, fetchInterval)
		case <-ctx.Done():
			return jose.JSONWebKey{}, ctx.Err()
		}
	}
	known = k.cached.Load()
	if key, ok := known.findKey(id); ok {
		return key, nil
	}
	if known == nil {
		return jose.JSONWebKey{}, failure.New(failure.SystemNetwork, "authenticate", "the keys of the token's issuer cannot be fetched now; try again later")
	}
	return jose.JSONWebKey{}, newUnauthenticatedError("the token is signed with a key that its issuer does not have")
}

// findKey returns the public signing key with the given id.
func (s *keySet) findKey(id string) (jose.JSONWebKey, bool) {
	if s == nil {
		return jose.JSONWebKey{}, false
	}
	for _, key := range s.Key(id) {
		if key.Use != "enc" && key.IsPublic() && key.Valid() { // never a symmetric key
			return key, true
		}
	}
	return jose.JSONWebKey{}, false
}

// fetch downloads the keys, unless another caller has replaced the known ones or the last fetch is too recent.
// Then it frees the fetch slot. It ignores cancellation of the caller, because other callers also wait for the
// result.
func (k *keyCache) fetch(ctx context.Context, known *keySet, pause time.Duration) {
	defer func() { k.fetchSlot <- struct{}{} }()
	if k.cached.Load() != known || !k.lastFetch.IsZero() && k.now().Sub(k.lastFetch) < pause {
		return
	}
	k.lastFetch = k.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	next, err := k.download(ctx)
	if err != nil {
		k.log.Warn("the keys of the issuer cannot be fetched; the known keys stay in use", zap.String("issuer", k.issuer), zap.Error(err))
		return
	}
	k.cached.Store(&keySet{next, k.now()})
	k.log.Info("fetched the keys of the issuer", zap.String("issuer", k.issuer), zap.Int("keys", len(next.Keys)))
}

// download reads the issuer's discovery document and the keys to which it refers.
func (k *keyCache) download(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration", &discovery); err != nil {
		return set, err
	}
	if discovery.Issuer != k.issuer {
		return set, fmt.Errorf("the discovery document names the issuer %q; --oidc-issuer must be the same", discovery.Issuer)
	}
	if err := k.get(ctx, discovery.Keys, &set); err != nil {
		return set, err
	}
	if len(set.Keys) == 0 {
		return set, errors.New("the issuer has no keys")
	}
	return set, nil
}

func (k *keyCache) get(ctx context.Context, at string, into any) error {
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
	return json.NewDecoder(io.LimitReader(resp.Body, maxResponseBytes)).Decode(into)
}

// newHTTPClient returns a client that trusts the CA in the file, or the CAs of the machine if file is empty. It
// keeps no idle connections, because it is used only about once an hour.
func newHTTPClient(ca string) (*http.Client, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if ca != "" {
		text, err := os.ReadFile(ca) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s contains no PEM certificate", ca)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the issuer answered with a redirect, which is not followed; set --oidc-issuer to the final URL")
	}}, nil
}
