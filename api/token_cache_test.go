package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// A replica that cached a token must know of its revocation within five
// seconds, whoever revoked it.
func TestTokenCacheForgetsWithinFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := domain.NewID[domain.TokenID](uuid.New())
		var stored projections.TokenView
		reads := 0
		c := &tokenCache{now: time.Now, kept: map[domain.TokenID]keptToken{}, read: func(context.Context, domain.TokenID) (projections.TokenView, error) {
			reads++
			v := stored
			time.Sleep(900 * time.Millisecond) // a slow read: what it says is that old
			return v, nil
		}}
		get := func() projections.TokenView {
			v, err := c.get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		get()
		revoked := time.Now()
		stored.RevokedAt = &revoked
		if get().RevokedAt != nil || reads != 1 {
			t.Errorf("the cache was not used: %d reads", reads)
		}
		for get().RevokedAt == nil {
			if since := time.Since(revoked); since > 5*time.Second {
				t.Fatalf("not known after %s", since)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if since := time.Since(revoked); since > 5*time.Second {
			t.Errorf("known after %s only", since)
		}
	})
}

// A read that began before a revocation of this replica must not be kept after it.
func TestTokenCacheKeepsNothingReadBeforeForget(t *testing.T) {
	id := domain.NewID[domain.TokenID](uuid.New())
	c := &tokenCache{now: time.Now, kept: map[domain.TokenID]keptToken{}}
	c.read = func(context.Context, domain.TokenID) (projections.TokenView, error) {
		c.forget(id)
		return projections.TokenView{}, nil
	}
	if _, err := c.get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if len(c.kept) != 0 {
		t.Error("an answer from before the revocation was kept")
	}
}

func TestTokenCacheKeepsNoErrorsAndStaysBounded(t *testing.T) {
	fail := errors.New("away")
	err := fail
	c := &tokenCache{now: time.Now, kept: map[domain.TokenID]keptToken{}, read: func(context.Context, domain.TokenID) (projections.TokenView, error) {
		return projections.TokenView{}, err
	}}
	id := domain.NewID[domain.TokenID](uuid.New())
	if _, got := c.get(t.Context(), id); !errors.Is(got, fail) {
		t.Errorf("got %v", got)
	}
	err = nil
	if _, got := c.get(t.Context(), id); got != nil {
		t.Errorf("an error was kept: %v", got)
	}
	for range maxCachedTokens + 10 {
		if _, err := c.get(t.Context(), domain.NewID[domain.TokenID](uuid.New())); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.kept) > maxCachedTokens {
		t.Errorf("the cache holds %d tokens, at most %d", len(c.kept), maxCachedTokens)
	}
}

func FuzzNeutraliseLeavesSoundJSONAlone(f *testing.F) {
	for _, s := range []string{`{"a":"b"}`, `{"a":"\u0000"}`, `"\ud800"`, `"\ud83d\ude00"`, `"\\u0000"`, "\"\xff\"", `\u0000`, `"\u00`, `"\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		once := neutralise(b)
		if twice := neutralise(once); string(twice) != string(once) {
			t.Errorf("%q became %q, then %q", b, once, twice)
		}
	})
}
