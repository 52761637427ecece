package wire

// PolicyBundle is the answer to a bundle that was put.
type PolicyBundle struct {
	BundleDigest string `json:"bundle_digest"`
}

// ActivatePolicyRequest makes a bundle the active one.
type ActivatePolicyRequest struct {
	BundleDigest string `json:"bundle_digest"`
	Reason       string `json:"reason"`
}

// ActivePolicy is the bundle that the ledger calls the active one. Each replica
// takes it over within about a second.
type ActivePolicy struct {
	BundleDigest string `json:"bundle_digest"` // "" before the first
	// Ordered says that an operator made it so, and not a replica that started with it.
	Ordered bool `json:"ordered"`
}
