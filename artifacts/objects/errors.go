package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
)

// The errors that callers decide on. They come wrapped with the operation, the
// key and what the server said.
var (
	// ErrUnavailable: the server cannot be reached, is overloaded or failed.
	// Nothing is known of the object. The caller repeats later.
	ErrUnavailable = errors.New("object store is unavailable")
	// ErrNoBucket: the server answers, but the bucket does not exist. It is
	// ErrUnavailable too, because it says nothing of the object.
	ErrNoBucket = fmt.Errorf("%w: the bucket does not exist, create it or correct its name", ErrUnavailable)
	// ErrDenied: the credentials are wrong or may not do this.
	ErrDenied = errors.New("object store refused the credentials or the permission")
	// ErrNotFound: the bucket exists and the object does not.
	ErrNotFound = errors.New("object does not exist")
	// ErrDifferent: the key holds other bytes. They stay.
	ErrDifferent = errors.New("key already holds a different object")
	// ErrDigestMismatch: the bytes are not those of the given size and digest.
	ErrDigestMismatch = errors.New("bytes do not match the announced size and digest")
	// ErrRange: the offset lies behind the object's end.
	ErrRange = errors.New("offset lies behind the end of the object")
	// ErrTooLarge: more than MaxObject bytes, or than the limit given to Spool.
	ErrTooLarge = errors.New("object is larger than the limit")
)

// Answers that Put handles itself.
var (
	errExists   = errors.New("object exists")
	errConflict = errors.New("another write of the object is under way")
)

// classify wraps err with what was being done. A canceled context stays what it
// is; a passed deadline means that the store did not answer in time.
func (b *Bucket) classify(ctx context.Context, doing, key string, err error) error {
	if err == nil {
		return nil
	}
	kind := kindOf(err)
	if cause := ctx.Err(); cause != nil && errors.Is(kind, ErrUnavailable) {
		if errors.Is(cause, context.Canceled) {
			return fmt.Errorf("%s %s: %w", doing, b.name(key), cause)
		}
		err = cause
	}
	if kind == nil {
		return fmt.Errorf("%s %s: %w", doing, b.name(key), err)
	}
	return fmt.Errorf("%s %s: %w: %w", doing, b.name(key), kind, err)
}

func kindOf(err error) error {
	for _, named := range []error{ErrUnavailable, ErrDenied, ErrNotFound, ErrDifferent, ErrDigestMismatch, ErrRange, ErrTooLarge} {
		if errors.Is(err, named) {
			return nil // classified already
		}
	}
	var resp minio.ErrorResponse
	if !errors.As(err, &resp) {
		return ErrUnavailable // the request never got an S3 answer
	}
	switch resp.Code {
	case minio.NoSuchBucket:
		return ErrNoBucket
	case minio.NoSuchKey, "NoSuchVersion":
		return ErrNotFound
	case "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidDigest", "IncompleteBody":
		return ErrDigestMismatch
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "RequestTimeTooSkewed":
		return ErrDenied // whatever the status: some answer 404 to an unknown key
	case "InvalidRange":
		return ErrRange
	case "EntityTooLarge":
		return ErrTooLarge
	case minio.PreconditionFailed:
		return errExists
	case "ConditionalRequestConflict", "OperationAborted":
		return errConflict
	case "SlowDown", "RequestTimeout", "ServiceUnavailable", "InternalError":
		return ErrUnavailable
	}
	switch {
	case resp.StatusCode == http.StatusPreconditionFailed:
		return errExists
	case resp.StatusCode == http.StatusConflict:
		return errConflict
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return ErrDenied
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == 0:
		return ErrUnavailable
	}
	return nil
}
