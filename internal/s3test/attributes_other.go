//go:build !linux

package s3test

// keepsAttributes: a separate folder for metadata works everywhere.
func keepsAttributes(string) bool { return false }
