package masker

import "testing"

func TestPublicKey(t *testing.T) {
	for name, want := range map[string]bool{"username": true, "HOST": true, "port": true, "password": false, "token": false, "user_password": false} {
		if got := publicKey(name); got != want {
			t.Errorf("publicKey(%q) = %v", name, got)
		}
	}
}
