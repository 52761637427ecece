package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

const (
	defaultServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	maxCredential         = 64 << 10
)

// Login is one of AppRole, Kubernetes and TokenFile.
type Login interface {
	// login gives a token for the agent. Its error is an *Error.
	login(context.Context, *endpoint) (*granted, error)
}

// AppRole logs in with a role id and a secret id from a file, which is read at
// each login.
type AppRole struct {
	Mount        string // where the method is enabled; "approle" if empty
	RoleID       string
	SecretIDFile string
	// Wrapped says that the file holds a response-wrapping token with the secret
	// id in it. It is unwrapped once, and the secret id is kept in memory for
	// later logins; a new text in the file is unwrapped anew. A wrapping token
	// that was used before is ErrLogin: another may have the secret id.
	Wrapped bool

	unwrapped *unwrapped
}

type unwrapped struct {
	mu       sync.Mutex
	from     string // the file's text
	secretID string
}

// Kubernetes logs in with the pod's service account, whose token is read at each
// login.
type Kubernetes struct {
	Mount     string // where the method is enabled; "kubernetes" if empty
	Role      string
	TokenFile string // the usual place in a pod if empty
}

// TokenFile takes a token that somebody else makes and renews, as Vault's own
// agent does. The file is read at each login.
type TokenFile struct{ Path string }

// prepared checks a login's settings and gives it what it keeps between logins.
func prepared(l Login) (Login, error) {
	switch l := l.(type) {
	case AppRole:
		if l.RoleID == "" || l.SecretIDFile == "" {
			return nil, errors.New("the AppRole login needs a role id and a file with the secret id")
		}
		l.unwrapped = &unwrapped{}
		l.Mount = strings.Trim(l.Mount, "/")
		if l.Mount == "" {
			l.Mount = "approle"
		}
		return l, nil
	case Kubernetes:
		if l.Role == "" {
			return nil, errors.New("the Kubernetes login needs a role")
		}
		l.Mount = strings.Trim(l.Mount, "/")
		if l.Mount == "" {
			l.Mount = "kubernetes"
		}
		if l.TokenFile == "" {
			l.TokenFile = defaultServiceAccount
		}
		return l, nil
	case TokenFile:
		if l.Path == "" {
			return nil, errors.New("the token file login needs a path")
		}
		return l, nil
	default:
		return nil, errors.New("choose how to log in to Vault: AppRole, Kubernetes or TokenFile")
	}
}

func (l AppRole) login(ctx context.Context, e *endpoint) (*granted, error) {
	const doing = "log in to Vault by AppRole"
	text, err := readCredential(doing, l.SecretIDFile)
	if err != nil {
		return nil, err
	}
	if l.Wrapped {
		if text, err = l.unwrapped.secret(ctx, e, l.Mount, text); err != nil {
			return nil, err
		}
	}
	return e.login(ctx, doing, l.Mount, map[string]any{"role_id": l.RoleID, "secret_id": text})
}

func (l Kubernetes) login(ctx context.Context, e *endpoint) (*granted, error) {
	const doing = "log in to Vault by the service account"
	text, err := readCredential(doing, l.TokenFile)
	if err != nil {
		return nil, err
	}
	return e.login(ctx, doing, l.Mount, map[string]any{"role": l.Role, "jwt": text})
}

func (l TokenFile) login(ctx context.Context, e *endpoint) (*granted, error) {
	const doing = "log in to Vault by the token file"
	token, err := readCredential(doing, l.Path)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &Error{Kind: ErrLogin, Doing: doing, Detail: "the file holds more than a token"}
	}
	c, err := e.client(token)
	if err != nil {
		return nil, &Error{Kind: ErrLogin, Doing: doing, Detail: err.Error()}
	}
	a, err := e.once(ctx, c, request{doing: doing, path: "auth/token/lookup-self"})
	if err != nil {
		return nil, refused(err)
	}
	return &granted{
		ClientToken: token, Accessor: a.text("accessor"), LeaseDuration: a.seconds("ttl"), Renewable: a.truth("renewable"),
	}, nil
}

func (e *endpoint) login(ctx context.Context, doing, mount string, body map[string]any) (*granted, error) {
	c, err := e.client("")
	if err != nil {
		return nil, &Error{Kind: ErrLogin, Doing: doing, Detail: err.Error()}
	}
	a, err := e.once(ctx, c, request{doing: doing, path: "auth/" + mount + "/login", body: body})
	if err != nil {
		return nil, refused(err)
	}
	if a.Auth == nil || a.Auth.ClientToken == "" {
		return nil, &Error{Kind: ErrLogin, Doing: doing, Detail: "the answer holds no token; does the method ask for a second factor?"}
	}
	return a.Auth, nil
}

// refused makes a login's failure ErrLogin, unless Vault is unavailable or nobody
// waits any more.
func refused(err error) error {
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) {
		return err
	}
	return &Error{Kind: ErrLogin, Doing: e.Doing, Status: e.Status, Detail: "the credentials are not accepted; check that they are valid and that the role exists"}
}

// secret gives the secret id that wrapping holds, from memory where it was
// unwrapped before.
func (u *unwrapped) secret(ctx context.Context, e *endpoint, mount, wrapping string) (string, error) {
	const doing = "unwrap the secret id"
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.from == wrapping {
		return u.secretID, nil
	}
	c, err := e.client(wrapping)
	if err != nil {
		return "", &Error{Kind: ErrLogin, Doing: doing, Detail: err.Error()}
	}
	failed := func(err error) error {
		if err := refused(err); !errors.Is(err, ErrLogin) {
			return err
		}
		return &Error{Kind: ErrLogin, Doing: doing, Detail: "the wrapping token has expired or was used already, and then another may hold the secret id: destroy that one and issue a new one"}
	}
	seen, err := e.once(ctx, c, request{doing: doing, path: "sys/wrapping/lookup", body: map[string]any{"token": wrapping}})
	if err != nil {
		return "", failed(err)
	}
	// Somebody may have put a wrapping token of his own in its place.
	if from := seen.text("creation_path"); !strings.HasPrefix(from, "auth/"+mount+"/role/") || !strings.HasSuffix(from, "/secret-id") {
		return "", &Error{Kind: ErrLogin, Doing: doing, Detail: "the wrapping token was not made for a secret id of this method"}
	}
	a, err := e.once(ctx, c, request{doing: doing, path: "sys/wrapping/unwrap", body: map[string]any{}})
	if err != nil {
		return "", failed(err)
	}
	defer a.wipe()
	id := a.text("secret_id")
	if id == "" {
		return "", &Error{Kind: ErrLogin, Doing: doing, Detail: "there is no secret id in it"}
	}
	u.from, u.secretID = wrapping, id
	return id, nil
}

// readCredential reads a short text from a file that only trusted users can write.
func readCredential(doing, path string) (string, error) {
	fail := func(detail string) (string, error) {
		return "", &Error{Kind: ErrLogin, Doing: doing, Detail: fmt.Sprintf("%s %s", path, detail)}
	}
	f, err := os.Open(path)
	if err != nil {
		return fail("cannot be opened; it holds the agent's credential")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return fail("is no regular file")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fail("can be written by others; take the right from group and others")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil || len(b) > maxCredential {
		return fail("cannot be read, or is too large for a credential")
	}
	text := strings.TrimSpace(string(b))
	clear(b)
	if text == "" {
		return fail("is empty")
	}
	return text, nil
}
