package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/masker"
	"github.com/platform-core/execution-plane-service/vault"
)

// What the ledger hears of weak parts is masked before it is cut.
func TestWeakPartsAreMaskedBeforeTheyAreCut(t *testing.T) {
	const value = "s3cr3t-Value-99"
	set := masker.New()
	if _, err := set.Add("v", []byte(value)); err != nil {
		t.Fatal(err)
	}
	for at := 170; at < 205; at++ {
		got := bounded(set, []string{strings.Repeat("n", at) + value + " goes on: too short"})
		if strings.Contains(got[0], value[:6]) || len(got[0]) > 200 {
			t.Errorf("at %d: %s", at, got[0])
		}
	}
	if got := bounded(set, make([]string, 80)); len(got) != 50 || got[49] != "and 31 more" {
		t.Errorf("%d entries, the last %q", len(got), got[len(got)-1])
	}
}

// A stopped job's outcome waits for Vault no longer than the service waits for the
// outcome; a job that goes on, and a budget that is not used up, are not cut short.
func TestStoringEndsAfterAStop(t *testing.T) {
	if within := max(storeAfterStop, shim.DefaultReapTimeout) + revokeAfterStop; within >= domain.StopDeadlineExtra-5*time.Second {
		t.Errorf("an outcome may come %v after the stop's budget, the service waits for %v", within, domain.StopDeadlineExtra)
	}
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancelCause(context.Background())
		a := &Agent{life: life, endLife: end, masks: newMaskRegistry()}
		a.config.Log = slog.New(slog.DiscardHandler)
		at := a.newAttempt(t.TempDir(), &journal{Clocks: domain.Clocks{StopSeconds: 60}})
		other := a.newAttempt(t.TempDir(), &journal{Clocks: domain.Clocks{StopSeconds: 60}})
		time.Sleep(time.Hour)
		at.cancelLaunch()
		time.Sleep(60 * time.Second)
		synctest.Wait()
		if at.storing.Err() != nil {
			t.Error("storing ends within the stop's budget")
		}
		time.Sleep(storeAfterStop)
		synctest.Wait()
		refused := (*refusedSecret)(nil)
		err := storeFailure(at.storing, &vault.Error{Kind: context.Canceled, Doing: "store the secret"})
		if at.storing.Err() == nil || !errors.As(err, &refused) || refused.code != vault.CodeVaultUnavailable || at.working.Err() != nil {
			t.Errorf("afterwards: %v, %v", at.storing.Err(), err)
		}
		other.stopWorking(errLeaseLost)
		synctest.Wait()
		if !errors.Is(context.Cause(other.storing), errLeaseLost) {
			t.Errorf("with a lost lease: %v", context.Cause(other.storing))
		}
		end(errEnded)
	})
}
