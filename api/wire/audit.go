package wire

// AuditFact is an event that an operator caused, or one that let a job do what not
// any job may.
type AuditFact struct {
	// Kinds are operator, sudo, destructive or elevated; a job with several privileges
	// has them all.
	Kinds []string `json:"kinds"`
	// Reason is what the operator gave, empty where there is none.
	Reason string `json:"reason,omitempty"`
	Event  Event  `json:"event"`
}
