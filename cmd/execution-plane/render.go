package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// printResult shows an ExecutionResult to a person.
func printResult(w io.Writer, r domain.ExecutionResult) {
	fmt.Fprintf(w, "%s  %s\n", headline(r), r.ExitSummary.Message)
	t := table(w)
	row := func(k, v string) { fmt.Fprintf(t, "  %s\t%s\n", k, v) }
	row("attempt", r.AttemptID.String())
	row("operation", r.OperationID.String()+" / "+printable(r.PlanNodeID))
	category := string(r.ExitSummary.Category)
	if r.FailureCode != "" {
		category += " / " + string(r.FailureCode)
	}
	row("category", category)
	if r.ExitSummary.Code != nil {
		row("exit code", fmt.Sprint(*r.ExitSummary.Code))
	}
	row("side effects", r.SideEffects)
	if r.StartedAt != nil {
		row("ran", fmt.Sprintf("%s, from %s", r.FinishedAt.Sub(*r.StartedAt).Round(time.Millisecond), r.StartedAt.Format(time.RFC3339)))
	} else {
		row("ran", "never started")
	}
	if r.Stop != nil {
		row("stop", fmt.Sprintf("%s, %s", r.Stop.Reason, r.Stop.Proof))
	}
	t.Flush()
	if len(r.Contract) > 0 {
		fmt.Fprintln(w, "  output contract")
		for _, c := range r.Contract {
			fmt.Fprintf(w, "    %s %s %s: %s\n", mark(c.Verdict), c.Kind, printable(c.Name), c.Verdict)
		}
	}
	if len(r.Evidence) > 0 {
		fmt.Fprintln(w, "  evidence")
		for _, e := range r.Evidence {
			fmt.Fprintf(w, "    %s %s: %s (%s, %s)\n", mark(e.Result), printable(e.Name), e.Result, e.Type, e.ObservedAt.Format(time.RFC3339))
		}
	}
	for _, a := range append(append([]domain.ArtifactRef{}, r.Outputs...), r.Artifacts...) {
		fmt.Fprintf(w, "  artifact %s (%s, %s)\n", printable(a.Name), a.Type, a.Storage)
	}
	for _, l := range r.RawLogs {
		state := "complete"
		if !l.Complete {
			state = "with gaps"
		}
		fmt.Fprintf(w, "  log %s: %d bytes, %s\n", l.Stream, l.Bytes, state)
	}
	fmt.Fprintf(w, "  bundle %s, manifest %.12s…\n", r.RawOutputBundle.State, r.RawOutputBundle.ManifestSHA256)
	if r.RawOutputBundle.State == domain.BundleQuarantined {
		fmt.Fprintf(w, "  ! its scan for secrets failed: log and bundle are shown to nobody; why and where: execution-plane events %s\n", short(r.AttemptID))
	}
}

func headline(r domain.ExecutionResult) string {
	switch {
	case r.Status != domain.StatusSucceeded:
		return "✗ " + string(r.Status)
	case r.ContractConfirmed():
		return "✓ succeeded, contract confirmed"
	default:
		return "! succeeded, contract not confirmed"
	}
}

func mark(verdict string) string {
	switch verdict {
	case "confirmed", "passed", "allow":
		return "✓"
	case "failed", "deny":
		return "✗"
	}
	return "?"
}

// printTimeline shows a stream as a person reads it: when, since when, what, who.
func printTimeline(w io.Writer, events []wire.Event) {
	t := table(w)
	var begin time.Time
	for _, e := range events {
		at, err := time.Parse(time.RFC3339Nano, e.Time)
		if err != nil {
			continue
		}
		if begin.IsZero() {
			begin = at
		}
		fmt.Fprintf(t, "  %d\t%s\t+%s\t%s\t%s\t%s\n", e.Version, at.Format("15:04:05.000"), at.Sub(begin).Round(time.Millisecond), e.Type, actorWord(e.Actor), eventGist(e))
	}
	t.Flush()
}

func actorWord(a wire.Actor) string {
	if a.Kind == "service" {
		return a.ID
	}
	if len(a.ID) == 36 {
		return a.Kind + " " + a.ID[:8]
	}
	return a.Kind + " " + printable(a.ID)
}

// eventGist is the one fact of an event that a reader wants first.
func eventGist(e wire.Event) string {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.PayloadBase64)
	if err != nil {
		return ""
	}
	switch d := d.(type) {
	case domain.Created:
		return d.Action
	case domain.PolicyDecided:
		return fmt.Sprintf("%s at %s, bundle %.8s %v", d.Verdict, d.At, d.BundleDigest, d.Reasons)
	case domain.PrivilegesGranted:
		return fmt.Sprintf("%s, at %s by %s", strings.Join(d.Privileges, ", "), d.At, strings.Join(d.Rules, ", "))
	case domain.PolicyReplaced:
		return fmt.Sprintf("bundle %.8s in the place of %.8s", d.BundleDigest, d.Before)
	case domain.Leased:
		return fmt.Sprintf("epoch %d to runner %s", d.Epoch, short(d.RunnerID))
	case domain.Started:
		return "isolation " + d.Isolation
	case domain.Progressed:
		return fmt.Sprintf("%s %d/%d", printable(d.Phase), d.Done, d.Total)
	case domain.StopRequested:
		return string(d.Reason)
	case domain.LeaseExpired:
		return d.Cause
	case domain.LeaseReleased:
		return d.Reason
	case domain.LogStored:
		return fmt.Sprintf("%s, %d bytes at %d", d.Stream, d.Bytes, d.Offset)
	case domain.EvidenceRecorded:
		return printable(d.Name) + ": " + d.Result
	case domain.ArtifactCreated:
		return fmt.Sprintf("%s, %d bytes", printable(d.Name), d.Bytes)
	case domain.PackagePushed:
		return fmt.Sprintf("%s %s, %d bytes", printable(d.Name), printable(d.Version), d.Bytes)
	case domain.ProcessTreeReaped:
		return fmt.Sprintf("%d survivors, by %s", d.Survivors, d.Method)
	case domain.Completed:
		return "claims " + d.Claim.Result
	case domain.Sealed:
		return fmt.Sprintf("bundle %s, %d objects", d.State, d.Objects)
	case domain.ScanPassed:
		return fmt.Sprintf("%d objects, %d bytes", d.Objects, d.Bytes)
	case domain.ScanFailed:
		return scanGist(d)
	case domain.SecretTokenIssued, domain.SecretResolved, domain.SecretRevoked, domain.RunnerSecretRevoked:
		return secretGist(d)
	case domain.AccessGranted:
		return fmt.Sprintf("%s of %s", printable(d.Name), short(d.AttemptID))
	case domain.AccessDenied:
		return fmt.Sprintf("%s of %s %v", printable(d.Name), short(d.AttemptID), d.Reasons)
	case domain.Succeeded:
		return string(d.Category)
	case domain.Failed:
		return string(d.FailureCode)
	case domain.Cancelled:
		return string(d.FailureCode)
	case domain.TimedOut:
		return string(d.FailureCode)
	}
	return deliveryGist(d)
}

// secretGist says what of Vault was used; no event holds a value.
func secretGist(e domain.Event) string {
	switch d := e.(type) {
	case domain.SecretTokenIssued:
		return fmt.Sprintf("to %s, with %s, until %s", d.Purpose, printable(strings.Join(d.Policies, ", ")), d.ExpiresAt.UTC().Format(time.TimeOnly))
	case domain.SecretResolved:
		text := fmt.Sprintf("%s is %s", printable(d.Name), printable(d.Reference))
		if d.Version > 0 && !strings.Contains(d.Reference, "?version=") {
			text += fmt.Sprintf(", version %d", d.Version)
		}
		if d.Unmasked {
			text += ", too short to be masked"
		}
		return text
	case domain.SecretRevoked:
		return fmt.Sprintf("tokens: %d", len(d.Accessors))
	case domain.RunnerSecretRevoked:
		return fmt.Sprintf("tokens: %d, left by %s", len(d.Accessors), short(d.AttemptID))
	}
	return ""
}

// scanGist says why a bundle is quarantined, and where something was found.
func scanGist(f domain.ScanFailed) string {
	text := f.Reason + ", the bundle is quarantined"
	if len(f.Found) > 0 {
		text += "; found in " + printable(strings.Join(f.Found, ", "))
	}
	return text
}

// printReasons shows why policy refused. Events keep codes only; details come
// with a verdict that is given now.
func printReasons(w io.Writer, reasons []wire.PolicyReason) {
	for _, r := range reasons {
		text := r.Code
		if r.Detail != "" {
			text += ": " + printable(r.Detail)
		}
		fmt.Fprintln(w, "    - "+text)
	}
}

// printFits shows which runners were considered.
func printFits(w io.Writer, fits []wire.RunnerFit) {
	for _, f := range fits {
		word := "does not fit"
		if f.Fits {
			word = fmt.Sprintf("fits, %d slots free", f.Free)
		}
		fmt.Fprintf(w, "  %s %s (pool %s): %s\n", printable(f.Name), short(f.RunnerID), printable(f.Pool), word)
		for _, r := range f.Reasons {
			fmt.Fprintf(w, "    - %s\n", printable(r))
		}
	}
}
