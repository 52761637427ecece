package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// puppet is a registered runner whose every step is the test's.
type puppet struct {
	w      *world
	id     domain.RunnerID
	client *client.Client
	timing wire.Timing // as it was told when it registered
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (w *world) puppet(url string, slots int) *puppet {
	w.t.Helper()
	p := &puppet{w: w, id: domain.NewID[domain.RunnerID](uuid.New())}
	secret := uuid.NewString()
	c, key := w.client(url, w.enrolment()), newKey()
	var r wire.Registered
	w.insist("the runner is let in", func() (err error) {
		r, err = c.Register(w.ctx, key, wire.Registration{
			RunnerID: p.id, Name: "verification-runner", Version: "1.0.0", JobTypes: []string{"verification"},
			Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: slots, TokenSHA256: sha(secret),
			BinarySHA256: sha("puppet"),
		})
		return err
	})
	p.timing = r.Timing
	p.client = w.client(url, "ep_"+r.TokenID.String()+"_"+secret)
	return p
}

// take waits for an offer and returns its lease.
func (p *puppet) take() (client.Lease, wire.Offer) {
	p.w.t.Helper()
	for {
		token := uuid.NewString()
		got, err := p.client.Commands(p.w.ctx, newKey(), p.id, wire.CommandsRequest{FreeSlots: 1, TokenSHA256: []string{sha(token)}}, 5*time.Second)
		if err != nil {
			p.w.t.Fatal(err)
		}
		if len(got.Offers) > 0 {
			o := got.Offers[0]
			return client.Lease{ID: o.LeaseID, Epoch: o.Epoch, Token: token}, o
		}
	}
}

// refused lists the reasons of the writes that the service refused to this runner.
func (p *puppet) refused() []string {
	p.w.t.Helper()
	rows, err := p.w.desk.Pool.Query(p.w.ctx, "SELECT convert_from(payload, 'UTF8')::jsonb->>'command' || ' ' || (convert_from(payload, 'UTF8')::jsonb->>'reason') FROM events WHERE stream = $1 AND type = $2 ORDER BY version",
		"runner/"+p.id.String(), domain.RunnerWriteRefused{}.EventType())
	if err != nil {
		p.w.t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			p.w.t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		p.w.t.Fatal(err)
	}
	return out
}

func (p *puppet) start(l client.Lease) error {
	_, err := p.client.Start(p.w.ctx, newKey(), l, wire.StartRequest{Isolation: "process"})
	return err
}
