package domain

import "time"

// CheckInputs says whether the holder of a live lease may have its attempt's inputs:
// while it runs.
func CheckInputs(a Attempt, f Fence, now time.Time) error {
	if err := f.check(&a, now); err != nil {
		return err
	}
	if a.Phase != PhaseRunning {
		return illegal(a.PublicState(), "inputs")
	}
	return nil
}
