package kafkatest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// The users of Secured.
const (
	Admin   = "admin"   // may do everything
	Service = "service" // may do what Allow says
)

// Secured starts a broker as Server does, whose Addresses take TLS and SASL (PLAIN
// and SCRAM-SHA-512) and that lets a user do only what it is allowed.
func Secured(t testing.TB, settings ...string) *Process {
	t.Helper()
	p := prepare(t)
	p.Passwords = map[string]string{Admin: rand.Text(), Service: rand.Text()}
	key, err := p.certify()
	if err != nil {
		t.Fatalf("making a certificate for the Kafka peer: %v", err)
	}
	const client = "listener.name.client."
	p.settings = append([]string{
		"listener.security.protocol.map=CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		client + "ssl.keystore.type=PEM",
		client + "ssl.keystore.location=" + key,
		client + "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
		fmt.Sprintf(client+`plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s" user_%s="%s";`,
			Admin, p.Passwords[Admin], Service, p.Passwords[Service]),
		client + "scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		// Anonymous are the node itself and this package, on INTERNAL and CONTROLLER.
		"super.users=User:ANONYMOUS;User:" + Admin,
	}, settings...)
	p.begin()
	p.administer("making the users", func(admin sarama.ClusterAdmin) error {
		var users []sarama.AlterUserScramCredentialsUpsert
		for name, password := range p.Passwords {
			users = append(users, sarama.AlterUserScramCredentialsUpsert{
				Name: name, Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 4096, Password: []byte(password), Salt: []byte(rand.Text()),
			})
		}
		results, err := admin.UpsertUserScramCredentials(users)
		for _, r := range results {
			if !errors.Is(r.ErrorCode, sarama.ErrNoError) {
				err = errors.Join(err, fmt.Errorf("user %s: %w", r.User, r.ErrorCode))
			}
		}
		return err
	})
	return p
}

// Config is a client's configuration for a user of Secured, with PLAIN.
func (p *Process) Config(user string) *sarama.Config {
	p.t.Helper()
	text, err := os.ReadFile(p.CA)
	if err != nil {
		p.t.Fatalf("reading the certificate of the Kafka peer: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	c := plainConfig()
	c.Net.TLS.Enable, c.Net.TLS.Config = true, &tls.Config{RootCAs: roots}
	c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, sarama.SASLTypePlaintext
	c.Net.SASL.User, c.Net.SASL.Password = user, p.Passwords[user]
	return c
}

// Allow lets a user of Secured do something with a topic, made or not, from now on.
// An idempotent producer that may write no topic at all is refused before it names
// one, with sarama.ErrClusterAuthorizationFailed.
func (p *Process) Allow(user, topic string, operations ...sarama.AclOperation) {
	p.t.Helper()
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral}
	what := "allowing " + user + " the topic " + topic
	p.administer(what, func(admin sarama.ClusterAdmin) error {
		var acls []*sarama.Acl
		for _, o := range operations {
			acls = append(acls, &sarama.Acl{Principal: "User:" + user, Host: "*", Operation: o, PermissionType: sarama.AclPermissionAllow})
		}
		return admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: acls}})
	})
	p.permitted(what, user, topic, func(o []sarama.AclOperation) bool {
		return !slices.ContainsFunc(operations, func(want sarama.AclOperation) bool { return !slices.Contains(o, want) })
	})
}

// Forbid takes back all that Allow gave a user for a topic.
func (p *Process) Forbid(user, topic string) {
	p.t.Helper()
	what := "forbidding " + user + " the topic " + topic
	p.administer(what, func(admin sarama.ClusterAdmin) error {
		_, err := admin.DeleteACL(permissions(user, topic), false)
		return err
	})
	p.permitted(what, user, topic, func(o []sarama.AclOperation) bool { return len(o) == 0 })
}

// permitted waits until the broker goes by what the controller has written down.
func (p *Process) permitted(what, user, topic string, ok func([]sarama.AclOperation) bool) {
	p.t.Helper()
	p.eventually(what, func() error {
		var seen []sarama.AclOperation
		p.administer(what, func(admin sarama.ClusterAdmin) error {
			resources, err := admin.ListAcls(permissions(user, topic))
			for _, r := range resources {
				for _, a := range r.Acls {
					seen = append(seen, a.Operation)
				}
			}
			return err
		})
		if !ok(seen) {
			return fmt.Errorf("it permits %v", seen)
		}
		return nil
	})
}

func permissions(user, topic string) sarama.AclFilter {
	principal := "User:" + user
	return sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourceName: &topic, ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Principal: &principal, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAllow,
	}
}

// certify makes a certificate for the loopback address that signs itself, and gives
// the path of the file with its key.
func (p *Process) certify() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafkatest"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	both := bytes.Join([][]byte{pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), certificate}, nil)
	p.CA = filepath.Join(p.dir, "ca.pem")
	path := filepath.Join(p.dir, "broker.pem")
	return path, errors.Join(os.WriteFile(p.CA, certificate, 0o600), os.WriteFile(path, both, 0o600))
}
