package s3embed

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

type keyPair struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// loadKeys reads the folder's keys and makes random ones the first time.
func loadKeys(path string) (keyPair, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return newKeys(path)
	}
	if err != nil {
		return keyPair{}, err
	}
	var keys keyPair
	if err := json.Unmarshal(data, &keys); err != nil || keys.AccessKey == "" || keys.SecretKey == "" {
		return keyPair{}, fmt.Errorf("%s holds no keys; delete it to get new ones: %w", path, err)
	}
	return keys, nil
}

func newKeys(path string) (keyPair, error) {
	keys := keyPair{AccessKey: "EMBEDDED" + rand.Text()[:12], SecretKey: rand.Text() + rand.Text()}
	data, err := json.Marshal(keys)
	if err != nil {
		return keyPair{}, err
	}
	return keys, writeWhole(path, data)
}
