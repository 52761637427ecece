package e2e_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/vaulttest"
)

// shape is a secret as an operator would store it, and the parts that only this
// secret can have: each random and long enough to be hunted for.
type shape struct {
	value string
	parts []string
}

// shapes are secrets of the kinds that people keep in a vault.
func shapes(t *testing.T) map[string]shape {
	t.Helper()
	bytes := func(n int) []byte {
		b := make([]byte, n)
		if _, err := rand.Read(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	lines := func(n int) []string {
		var out []string
		for range n {
			out = append(out, base64.StdEncoding.EncodeToString(bytes(48)))
		}
		return out
	}
	pem := func(kind, end string, body []string) string {
		return "-----BEGIN " + kind + "-----" + end + strings.Join(body, end) + end + "-----END " + kind + "-----" + end
	}
	rsa, ssh, account := lines(6), lines(4), lines(5)
	signature := base64.RawURLEncoding.EncodeToString(bytes(32))
	regex, mobile := "^("+rand.Text()+"+)$|[Z]{2}\\d*?.`", "Pä"+rand.Text()+"🔑ñ"+rand.Text()
	access, secret := "AKIA"+rand.Text()[:16], base64.StdEncoding.EncodeToString(bytes(30))
	token, api, password := rand.Text()+rand.Text(), rand.Text(), rand.Text()+"@:/%"
	service, err := json.MarshalIndent(map[string]string{"type": "service_account", "private_key": pem("PRIVATE KEY", "\n", account)}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	number, id, encoded := hex.EncodeToString(bytes(32)), uuid.NewString(), base64.StdEncoding.EncodeToString(bytes(27))
	return map[string]shape{
		"regex":      {regex, []string{regex}},
		"emoji":      {mobile, []string{mobile}},
		"jwt":        {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0." + signature, []string{signature}},
		"aws":        {fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", access, secret), []string{access[4:], secret}},
		"pem-crlf":   {pem("RSA PRIVATE KEY", "\r\n", rsa), rsa},
		"openssh":    {pem("OPENSSH PRIVATE KEY", "\n", ssh), ssh},
		"account":    {string(service), account},
		"kubeconfig": {"apiVersion: v1\nkind: Config\nusers:\n- name: ci\n  user:\n    token: " + token + "\n", []string{token}},
		"dsn":        {"postgresql://app:" + url.QueryEscape(password) + "@db.internal:5432/app", []string{password[:26]}},
		"dotenv":     {"DB_HOST=db.internal\nexport API_TOKEN='" + api + "'\n", []string{api}},
		// The ledger is full of hex: only longer pieces of these two say something.
		"hex":    {number, nil},
		"uuid":   {id, nil},
		"base64": {encoded, []string{encoded}},
	}
}

// Whatever kind of secret it is: after its executor showed it in every way, it is in
// no table, object, log or file, and the scan, which reads all of that too, sees no
// secret where there is none.
func TestEveryShapeIsFoundNowhere(t *testing.T) {
	t.Parallel()
	v := &vaulted{vault: vaulttest.Server(t)}
	v.setup = v.vault.Standard()
	v.world = newWorld(t, setup{policy: secretBundle(t)})
	s := v.startService()
	k := v.leaker(s.plane.URL())

	ids, all := map[string]domain.AttemptID{}, shapes(t)
	for name, sh := range all {
		v.vault.Put("kv2", "app/"+name, map[string]any{"value": sh.value})
		v.values = append(v.values, sh.parts...)
		ids[name] = v.submit(s.control, leaks(leakerFails, func(j *domain.JobSpec) {
			j.Inputs.Secrets = []domain.SecretInput{{Name: "db", SecretRef: "vault://kv2/app/" + name + "#value"}}
		}))
	}
	h := newHunt(t, v.values...)
	for name, id := range ids {
		if res := v.result(s.control, id); res.FailureCode != domain.CodeTaskFailed || res.RawOutputBundle.State != "complete" {
			t.Errorf("%s: %+v", name, res)
			continue
		}
		v.wantScanned(id, domain.ScanPassed{}.EventType())
		shown := v.readLog(s.control, id, "stdout")
		if !strings.Contains(shown, "raw ") {
			t.Errorf("%s: nothing was shown, so nothing was tried: %q", name, shown)
		}
		h.look("log", name, []byte(shown))
		value := all[name].value
		for _, piece := range []string{value[:16], value[len(value)-16:]} {
			if strings.Contains(shown, piece) || strings.Contains(shown, hex.EncodeToString([]byte(piece[2:14]))) {
				t.Errorf("%s: the log shows %q", name, shown)
			}
		}
	}
	h.database(v.world)
	h.bucket(v.world)
	h.folder("runner's file", filepath.Dir(k.config.StateDir))
	h.look("log of", "the runner", []byte(k.log.String()))
	h.look("log of", "the service", []byte(v.log.String()))
	h.wantLooked("table", "object", "log", "log of")
}
