package receiver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CaughtUp is what catching up found.
type CaughtUp struct {
	Same      int      // pushed before, with the same bytes
	New       int      // not pushed yet; kept now
	Different []string // attempts whose pushed bytes are others than the pulled ones
	Cursor    string   // where the next one goes on
}

// page is an answer of GET /v1/results. Result keeps its exact bytes.
type page struct {
	Items []struct {
		Cursor    string          `json:"cursor"`
		AttemptID string          `json:"attempt_id"`
		Result    json.RawMessage `json:"result"`
	} `json:"items"`
	Next string `json:"next"`
}

const (
	cursorName   = "cursor"
	maxPageBytes = 256 << 20
)

// CatchUp reads all results since it last did, compares them with what was pushed,
// and keeps those that were not. The cursor stands in the state folder and moves
// once a page is safe.
func (r *Receiver) CatchUp(ctx context.Context, client *http.Client, service, token string) (CaughtUp, error) {
	out := CaughtUp{}
	cursor, err := os.ReadFile(filepath.Join(r.dir(), cursorName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("reading the cursor: %w", err)
	}
	out.Cursor = strings.TrimSpace(string(cursor))
	for {
		p, err := fetch(ctx, client, service, token, out.Cursor)
		if err != nil {
			return out, err
		}
		for _, item := range p.Items {
			if err := r.compare(&out, item.AttemptID, item.Result); err != nil {
				return out, err
			}
		}
		if p.Next != "" && p.Next != out.Cursor {
			out.Cursor = p.Next
			if err := writeFile(filepath.Join(r.dir(), cursorName), []byte(p.Next+"\n")); err != nil {
				return out, fmt.Errorf("keeping the cursor: %w", err)
			}
		}
		if len(p.Items) == 0 {
			return out, nil
		}
	}
}

func (r *Receiver) compare(out *CaughtUp, attempt string, body []byte) error {
	if d, ok := r.Delivery(attempt); ok {
		if bytes.Equal(d.Body, body) {
			out.Same++
		} else {
			out.Different = append(out.Different, attempt)
		}
		return nil
	}
	result, err := ParseResult(body)
	if err != nil {
		return fmt.Errorf("the result of %s: %w", attempt, err)
	}
	fresh, err := r.keep(Delivery{AttemptID: attempt, SHA256: digest(body), Body: body, At: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("keeping the result of %s: %w", attempt, err)
	}
	if fresh {
		out.New++
		r.print(result.Summary())
	} else {
		out.Same++ // it was pushed just now
	}
	return nil
}

func fetch(ctx context.Context, client *http.Client, service, token, after string) (p page, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(service, "/")+"/v1/results?after="+url.QueryEscape(after), nil)
	if err != nil {
		return p, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes))
	if err != nil {
		return p, fmt.Errorf("reading results: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return p, fmt.Errorf("reading results: %s: %.300s", resp.Status, body)
	}
	return p, json.Unmarshal(body, &p)
}

func (r *Receiver) dir() string { return filepath.Dir(r.journal.file.Name()) }

// writeFile replaces a file so that either the old or the new content is there.
func writeFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(name))
}
