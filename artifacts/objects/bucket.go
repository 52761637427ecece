package objects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// MaxObject is the greatest size of an object: what S3 takes in one PUT.
const MaxObject = 5 << 30

const (
	dialTimeout    = 3 * time.Second
	answerTimeout  = 60 * time.Second
	defaultRegion  = "us-east-1"
	metadataSHA256 = "X-Amz-Meta-Sha256"
	checksumSHA256 = "X-Amz-Checksum-Sha256"
)

// Config names a bucket and the right to use it.
type Config struct {
	Endpoint  string // host:port, without a scheme
	Bucket    string
	AccessKey string
	SecretKey string
	Region    string // empty: us-east-1
	Secure    bool   // https
	PathStyle bool   // http://host/bucket/key, as most servers other than AWS want it
}

// Bucket is safe for concurrent use.
type Bucket struct {
	config    Config
	client    minio.Core
	transport *http.Transport

	probe     sync.Mutex // guards the two below
	probed    bool
	checksums bool // the server refuses a body that does not match its checksum
}

// Open checks the configuration. It does not connect: Health and EnsureBucket do.
func Open(config Config) (*Bucket, error) {
	if err := s3utils.CheckValidBucketNameStrict(config.Bucket); err != nil {
		return nil, fmt.Errorf("opening bucket %q: %w", config.Bucket, err)
	}
	if strings.Contains(config.Endpoint, "/") {
		return nil, fmt.Errorf("opening bucket %q: endpoint %q must be host:port, without scheme and path", config.Bucket, config.Endpoint)
	}
	if config.AccessKey == "" || config.SecretKey == "" {
		return nil, fmt.Errorf("opening bucket %q: access key and secret key are needed", config.Bucket)
	}
	if config.Region == "" {
		config.Region = defaultRegion
	}
	transport, err := minio.DefaultTransport(config.Secure)
	if err != nil {
		return nil, fmt.Errorf("opening bucket %q: %w", config.Bucket, err)
	}
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	transport.TLSHandshakeTimeout = dialTimeout
	transport.ResponseHeaderTimeout = answerTimeout
	lookup := minio.BucketLookupAuto
	if config.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.NewCore(config.Endpoint, &minio.Options{
		Creds:        credentials.NewStaticV4(config.AccessKey, config.SecretKey, ""),
		Secure:       config.Secure,
		Transport:    transport,
		Region:       config.Region,
		BucketLookup: lookup,
		MaxRetries:   2, // tries: one more, for a connection that the server had closed
	})
	if err != nil {
		return nil, fmt.Errorf("opening bucket %q at %q: %w", config.Bucket, config.Endpoint, err)
	}
	return &Bucket{config: config, client: *client, transport: transport}, nil
}

// Name is the bucket's name, as it stands in s3:// references.
func (b *Bucket) Name() string { return b.config.Bucket }

// URI is the s3:// reference of a key.
func (b *Bucket) URI(key string) string { return "s3://" + b.config.Bucket + "/" + key }

// Close drops idle connections. Running calls go on.
func (b *Bucket) Close() { b.transport.CloseIdleConnections() }

// Health asks whether the bucket is there and may be used. Nil means yes.
func (b *Bucket) Health(ctx context.Context) error {
	found, err := b.client.BucketExists(ctx, b.config.Bucket)
	if err != nil {
		return b.classify(ctx, "checking bucket", "", err)
	}
	if !found {
		return fmt.Errorf("checking bucket %s: %w", b.name(""), ErrNoBucket)
	}
	return nil
}

// EnsureBucket creates the bucket unless it is there.
func (b *Bucket) EnsureBucket(ctx context.Context) error {
	err := b.Health(ctx)
	if !errors.Is(err, ErrNoBucket) {
		return err
	}
	err = b.client.MakeBucket(ctx, b.config.Bucket, minio.MakeBucketOptions{Region: b.config.Region})
	if err == nil {
		return nil
	}
	if again := b.Health(ctx); again == nil {
		return nil // another process was faster
	}
	return b.classify(ctx, "creating bucket", "", err)
}

// name says in errors which object at which server.
func (b *Bucket) name(key string) string {
	return b.URI(key) + " at " + b.config.Endpoint
}
