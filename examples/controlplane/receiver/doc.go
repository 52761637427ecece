// Package receiver takes callbacks the way a control plane should: it verifies the
// signature and the time, keeps each result once and safely before it answers 200,
// and can tell whether what was pushed is what GET /v1/results gives.
//
// It uses the standard library and the Standard Webhooks library only, so that it
// can be copied. It touches one folder.
package receiver
