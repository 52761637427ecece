package domain

import (
	"slices"
	"time"
)

// What a scan calls the parts of an attempt that are no objects of its bundle.
const (
	ScannedEvents = "events"
	ScannedTexts  = "texts"
)

// CheckFingerprints says whether the holder of a live lease may ask for its
// attempt's fingerprint key and send prints: while it runs, and under the upload
// lease.
func CheckFingerprints(a Attempt, f Fence, now time.Time) error {
	if err := f.check(&a, now); err != nil {
		return err
	}
	if a.Phase != PhaseRunning && a.Phase != PhaseFinalizing {
		return illegal(a.PublicState(), "fingerprints")
	}
	return nil
}

// TextsAreClean reports whether the scan read all texts of the attempt and found
// nothing in them: only then may they still be shown.
func (f ScanFailed) TextsAreClean() bool {
	return f.Scanner != "" && !slices.Contains(f.Found, ScannedTexts) && !slices.Contains(f.Skipped, ScannedTexts)
}
