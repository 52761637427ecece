package runners

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// formats are what the schemas use beyond the standard ones. A format looks at
// text only and lets anything else pass, as the standard asks.
func formats() []*jsonschema.Format {
	onText := func(name string, check func(string) error) *jsonschema.Format {
		return &jsonschema.Format{Name: name, Validate: func(v any) error {
			if s, ok := v.(string); ok {
				return check(s)
			}
			return nil
		}}
	}
	return []*jsonschema.Format{
		onText("re2", checkRE2),
		onText("pem-certificates", checkCertificates),
		onText("request-path", checkRequestPath),
	}
}

// formatHints say what each format wants; the library's own errors would
// repeat the value.
var formatHints = map[string]string{
	"re2":              "must be an RE2 regular expression",
	"pem-certificates": "must be one or more PEM certificates",
	"request-path":     "must be a path and query of a URL, percent-encoded",
	"json-pointer":     "must be a JSON pointer such as /status/phase",
}

func checkRE2(s string) error {
	_, err := regexp.Compile(s)
	return err
}

func checkCertificates(s string) error {
	rest, found := []byte(s), false
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return errors.New("a PEM block that is no certificate")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		found = true
	}
	if !found || strings.TrimSpace(string(rest)) != "" {
		return errors.New("text that is no PEM block")
	}
	return nil
}

func checkRequestPath(s string) error {
	if strings.Contains(s, "#") {
		return errors.New("a fragment is never sent")
	}
	_, err := url.ParseRequestURI(s)
	return err
}
