// Package okta stands in for Okta's SDK, which Vault's core imports for one kind
// of second factor and which takes minutes and gigabytes to compile. It has the
// names that the core uses, and says that the factor is not built in.
package okta

import (
	"context"
	"errors"
	"net/http"
)

var errLeftOut = errors.New("the Okta factor is not part of this server")

type (
	ConfigSetter  func()
	Configuration struct{ Context context.Context }
	APIClient     struct {
		UserAPI       UserAPI
		UserFactorAPI UserFactorAPI
	}
	UserAPI        struct{}
	UserFactorAPI  struct{}
	User           struct{}
	UserFactorPush struct{}
	Factor         struct{ UserFactorPush *UserFactorPush }
	VerifyResult   struct{ Links map[string]any }
	Transaction    struct {
		UserFactorPushTransactionWaiting  *struct{}
		UserFactorPushTransaction         *struct{}
		UserFactorPushTransactionRejected *struct{}
		UserFactorPushTransactionTimeout  *struct{}
	}
	// Request is any call; it fails.
	Request[T any] struct{}
)

func WithToken(string) ConfigSetter  { return nil }
func WithOrgUrl(string) ConfigSetter { return nil }
func WithCache(bool) ConfigSetter    { return nil }

func NewConfiguration(...ConfigSetter) (*Configuration, error) { return nil, errLeftOut }
func NewAPIClient(*Configuration) *APIClient                   { return &APIClient{} }

func (*APIClient) GetConfig() *Configuration { return &Configuration{Context: context.Background()} }

func (UserAPI) ListUsers(context.Context) Request[[]User] { return Request[[]User]{} }

func (UserFactorAPI) ListFactors(context.Context, string) Request[[]Factor] {
	return Request[[]Factor]{}
}

func (UserFactorAPI) VerifyFactor(context.Context, string, string) Request[*VerifyResult] {
	return Request[*VerifyResult]{}
}

func (UserFactorAPI) GetFactorTransactionStatus(context.Context, string, string, string) Request[*Transaction] {
	return Request[*Transaction]{}
}

func (r Request[T]) Filter(string) Request[T] { return r }

func (Request[T]) Execute() (T, *http.Response, error) {
	var none T
	return none, nil, errLeftOut
}

func (User) GetId() string { return "" }

func (UserFactorPush) GetId() string { return "" }

func (VerifyResult) GetFactorResult() string { return "" }
