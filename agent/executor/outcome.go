package executor

// Exit is how the executor's process ended. Signal 0 means by itself.
type Exit struct {
	Code   int
	Signal int
}

// Status is the code as people know it: 128+n for signal n.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// Conclusion is what an ended executor amounts to.
type Conclusion struct {
	Result OutcomeResult `json:"result"`
	// Code is the tool's status, else the executor's.
	Code int `json:"code"`
	// RecommendedCategory is the executor's, empty without one.
	RecommendedCategory string `json:"recommended_category,omitempty"`
	// Message is the executor's own text, or says why it counts as crashed.
	Message string `json:"message,omitempty"`
}

// Conclude reads an end that nobody else caused. claimed is the outcome
// message, nil without one; violations counts broken messages.
//
// The claim counts, except that a process which claims success and then fails
// has crashed. Without a claim, broken messages are a crash (the claim may have
// been among them), a signal is a crash, and the exit code says the rest.
func Conclude(claimed *Outcome, exit Exit, violations int) Conclusion {
	c := Conclusion{Code: exit.Status()}
	switch {
	case claimed != nil && claimed.Result == Succeeded && exit.Status() != 0:
		c.Result = ExecutorCrashed
		c.Message = "it reported success and then ended with an error"
	case claimed != nil:
		c.Result = claimed.Result
		c.RecommendedCategory = claimed.RecommendedCategory
		c.Message = claimed.Message
		if claimed.Code != nil {
			c.Code = *claimed.Code
		}
	case violations > 0:
		c.Result = ExecutorCrashed
		c.Message = "it sent broken messages and no valid outcome"
	case exit.Signal != 0:
		c.Result = ExecutorCrashed
		c.Message = "a signal ended it before it reported an outcome"
	case exit.Code == 0:
		c.Result = Succeeded
	default:
		c.Result = TaskFailed
	}
	return c
}
