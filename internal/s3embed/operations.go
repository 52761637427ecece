package s3embed

import (
	"net/http"
	"strings"
)

// served lists, by method, the sub-resources that reach the protocol layer on a
// bucket and on an object; "" is the plain one. All else is 501.
var served = struct{ service, bucket, object map[string][]string }{
	service: map[string][]string{http.MethodGet: {""}},
	bucket: map[string][]string{
		http.MethodGet:    {"", "location"},
		http.MethodHead:   {""},
		http.MethodPut:    {""},
		http.MethodDelete: {""},
		http.MethodPost:   {"delete"},
	},
	object: map[string][]string{
		http.MethodGet:    {""},
		http.MethodHead:   {""},
		http.MethodPut:    {""},
		http.MethodDelete: {""},
	},
}

// subresources change what a request means.
var subresources = []string{
	"accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "intelligent-tiering",
	"inventory", "legal-hold", "lifecycle", "location", "logging", "metrics", "notification", "object-lock",
	"ownershipControls", "partNumber", "policy", "policyStatus", "publicAccessBlock", "replication",
	"requestPayment", "restore", "retention", "select", "session", "tagging", "torrent", "uploadId", "uploads",
	"versionId", "versioning", "versions", "website",
}

func isServed(r *http.Request) bool {
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		return false
	}
	bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	table := served.object
	switch {
	case bucket == "":
		table = served.service
	case object == "":
		table = served.bucket
	}
	query, asked := r.URL.Query(), ""
	for _, s := range subresources {
		if query.Has(s) {
			if asked != "" {
				return false
			}
			asked = s
		}
	}
	for _, s := range table[r.Method] {
		if s == asked {
			return true
		}
	}
	return false
}
