package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/vault"
)

// vaultFlags say where a runner reads secrets and how it logs in. Credentials are
// files, never flags. Nothing of it is needed where no job names secrets.
type vaultFlags struct {
	Address      string        `env:"EXECUTION_PLANE_VAULT_ADDRESS" help:"Vault, as https://host:port; without it a job that names secrets fails as vault_unavailable."`
	Namespace    string        `env:"EXECUTION_PLANE_VAULT_NAMESPACE" help:"Vault Enterprise's namespace."`
	CAFile       string        `env:"EXECUTION_PLANE_VAULT_CA_FILE" type:"path" help:"Certificates in PEM to trust instead of the system's."`
	CertFile     string        `env:"EXECUTION_PLANE_VAULT_CERT_FILE" type:"path" help:"Client certificate in PEM."`
	KeyFile      string        `env:"EXECUTION_PLANE_VAULT_KEY_FILE" type:"path" help:"Its key."`
	ServerName   string        `env:"EXECUTION_PLANE_VAULT_SERVER_NAME" help:"Name in the server's certificate, if it is not the address's host."`
	Login        string        `env:"EXECUTION_PLANE_VAULT_LOGIN" enum:",approle,kubernetes,token-file" default:"" help:"How to log in: approle, kubernetes or token-file."`
	Mount        string        `env:"EXECUTION_PLANE_VAULT_MOUNT" help:"Where that method is enabled; its own name by default."`
	RoleID       string        `env:"EXECUTION_PLANE_VAULT_ROLE_ID" help:"approle: the role id."`
	SecretIDFile string        `env:"EXECUTION_PLANE_VAULT_SECRET_ID_FILE" type:"path" help:"approle: file with the secret id."`
	Wrapped      bool          `env:"EXECUTION_PLANE_VAULT_WRAPPED" help:"approle: the file holds a response-wrapping token with the secret id in it."`
	Role         string        `env:"EXECUTION_PLANE_VAULT_ROLE" help:"kubernetes: the role."`
	TokenFile    string        `env:"EXECUTION_PLANE_VAULT_TOKEN_FILE" type:"path" help:"token-file: the token; kubernetes: the service account's token, at its usual place by default."`
	Timeout      time.Duration `env:"EXECUTION_PLANE_VAULT_TIMEOUT" default:"10s" help:"Longest wait for one answer."`
	Patience     time.Duration `env:"EXECUTION_PLANE_VAULT_PATIENCE" default:"20s" help:"How long to try again while Vault is unavailable."`
}

// config is nil where no address is given.
func (f vaultFlags) config() (*vault.Config, error) {
	if f.Address == "" {
		if f.Login != "" {
			return nil, errors.New("--vault-login is given without --vault-address")
		}
		return nil, nil
	}
	c := &vault.Config{
		Address: f.Address, Namespace: f.Namespace, CAFile: f.CAFile, CertFile: f.CertFile, KeyFile: f.KeyFile,
		ServerName: f.ServerName, RequestTimeout: f.Timeout, Patience: f.Patience,
	}
	switch f.Login {
	case "approle":
		c.Login = vault.AppRole{Mount: f.Mount, RoleID: f.RoleID, SecretIDFile: f.SecretIDFile, Wrapped: f.Wrapped}
	case "kubernetes":
		c.Login = vault.Kubernetes{Mount: f.Mount, Role: f.Role, TokenFile: f.TokenFile}
	case "token-file":
		c.Login = vault.TokenFile{Path: f.TokenFile}
	default:
		return nil, errors.New("choose how to log in to Vault with --vault-login: approle, kubernetes or token-file")
	}
	if _, err := vault.New(*c); err != nil {
		return nil, fmt.Errorf("--vault-…: %w", err)
	}
	return c, nil
}
