package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/vault/sdk/framework"
	"github.com/hashicorp/vault/sdk/logical"
)

// accountsFactory makes a secrets engine in the manner of the database engine,
// with its accounts in Vault's own storage: creds/<role> makes an account with a
// lease, alive/ lists the accounts, and roles/<role> says how long they live.
// The leases themselves are Vault's.
func accountsFactory(ctx context.Context, conf *logical.BackendConfig) (logical.Backend, error) {
	b := &accounts{}
	b.Backend = &framework.Backend{
		BackendType: logical.TypeLogical,
		Help:        "Accounts with leases, for tests.",
		Secrets: []*framework.Secret{{
			Type: "account", Renew: b.renew, Revoke: b.revoke,
			Fields: map[string]*framework.FieldSchema{
				"username": {Type: framework.TypeString}, "password": {Type: framework.TypeString},
			},
		}},
		Paths: []*framework.Path{
			{
				Pattern: "roles/" + framework.GenericNameRegex("role"),
				Fields: map[string]*framework.FieldSchema{
					"role":        {Type: framework.TypeString},
					"ttl":         {Type: framework.TypeDurationSecond, Description: "of a lease"},
					"max_ttl":     {Type: framework.TypeDurationSecond, Description: "of a lease with its renewals"},
					"fail_revoke": {Type: framework.TypeBool, Description: "refuse to revoke"},
					"fail_renew":  {Type: framework.TypeBool, Description: "refuse to renew"},
				},
				Operations: map[logical.Operation]framework.OperationHandler{
					logical.UpdateOperation: &framework.PathOperation{Callback: b.writeRole},
				},
			},
			{
				Pattern: "creds/" + framework.GenericNameRegex("role"),
				Fields: map[string]*framework.FieldSchema{
					"role": {Type: framework.TypeString},
					"note": {Type: framework.TypeString, Description: "given back in the answer"},
				},
				Operations: map[logical.Operation]framework.OperationHandler{
					logical.ReadOperation:   &framework.PathOperation{Callback: b.make},
					logical.UpdateOperation: &framework.PathOperation{Callback: b.make},
				},
			},
			{
				Pattern: "alive/?$",
				Operations: map[logical.Operation]framework.OperationHandler{
					logical.ListOperation: &framework.PathOperation{Callback: b.alive},
				},
			},
		},
	}
	return b, b.Setup(ctx, conf)
}

type accounts struct{ *framework.Backend }

type accountRole struct {
	TTL        time.Duration
	MaxTTL     time.Duration
	FailRevoke bool
	FailRenew  bool
}

func (b *accounts) writeRole(ctx context.Context, req *logical.Request, d *framework.FieldData) (*logical.Response, error) {
	role := accountRole{FailRevoke: d.Get("fail_revoke").(bool), FailRenew: d.Get("fail_renew").(bool)}
	if v, ok := d.GetOk("ttl"); ok {
		role.TTL = time.Duration(v.(int)) * time.Second
	}
	if v, ok := d.GetOk("max_ttl"); ok {
		role.MaxTTL = time.Duration(v.(int)) * time.Second
	}
	entry, err := logical.StorageEntryJSON("roles/"+d.Get("role").(string), role)
	if err != nil {
		return nil, err
	}
	return nil, req.Storage.Put(ctx, entry)
}

func (b *accounts) role(ctx context.Context, s logical.Storage, name string) (*accountRole, error) {
	entry, err := s.Get(ctx, "roles/"+name)
	if err != nil || entry == nil {
		return nil, err
	}
	role := &accountRole{}
	return role, entry.DecodeJSON(role)
}

func (b *accounts) make(ctx context.Context, req *logical.Request, d *framework.FieldData) (*logical.Response, error) {
	name := d.Get("role").(string)
	role, err := b.role(ctx, req.Storage, name)
	if err != nil {
		return nil, err
	}
	if role == nil {
		return logical.ErrorResponse("unknown role %q", name), nil
	}
	user := "v-" + name + "-" + strings.ToLower(rand.Text()[:8])
	if err := req.Storage.Put(ctx, &logical.StorageEntry{Key: "alive/" + user, Value: []byte(name)}); err != nil {
		return nil, err
	}
	data := map[string]any{"username": user, "password": rand.Text()}
	if note := d.Get("note").(string); note != "" {
		data["note"] = note
	}
	resp := b.Secret("account").Response(data, map[string]any{"user": user, "role": name})
	resp.Secret.TTL, resp.Secret.MaxTTL, resp.Secret.Renewable = role.TTL, role.MaxTTL, true
	return resp, nil
}

func (b *accounts) renew(ctx context.Context, req *logical.Request, _ *framework.FieldData) (*logical.Response, error) {
	role, err := b.role(ctx, req.Storage, req.Secret.InternalData["role"].(string))
	if err != nil {
		return nil, err
	}
	if role == nil || role.FailRenew {
		return nil, errors.New("the role forbids it")
	}
	resp := &logical.Response{Secret: req.Secret}
	resp.Secret.TTL, resp.Secret.MaxTTL = role.TTL, role.MaxTTL
	return resp, nil
}

func (b *accounts) revoke(ctx context.Context, req *logical.Request, _ *framework.FieldData) (*logical.Response, error) {
	role, err := b.role(ctx, req.Storage, req.Secret.InternalData["role"].(string))
	if err != nil {
		return nil, err
	}
	if role != nil && role.FailRevoke {
		return nil, errors.New("the role forbids it")
	}
	return nil, req.Storage.Delete(ctx, "alive/"+req.Secret.InternalData["user"].(string))
}

func (b *accounts) alive(ctx context.Context, req *logical.Request, _ *framework.FieldData) (*logical.Response, error) {
	users, err := req.Storage.List(ctx, "alive/")
	if err != nil {
		return nil, err
	}
	return logical.ListResponse(users), nil
}
