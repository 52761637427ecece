package main

import (
	"errors"
	"io"

	"github.com/platform-core/execution-plane-service/api/client"
)

type logsCmd struct {
	ID     string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
	Follow bool   `short:"f" help:"Go on until the attempt has ended."`
	Stream string `enum:"stdout,stderr,events" default:"stdout" help:"Which stream: stdout, stderr or events."`
	Offset int64  `help:"Begin at this byte."`
	Raw    bool   `help:"Print the bytes as they are, escape sequences included."`
}

func (c *logsCmd) Run(s *session) error {
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	var filter colourOnly
	write := func(b []byte) error {
		if !c.Raw && isTerminal(s.out) {
			b = filter.next(nil, b)
		}
		_, err := s.out.Write(b)
		return err
	}
	if c.Follow {
		tail := api.TailLog(s.ctx, id, c.Stream, c.Offset)
		defer tail.Close()
		for {
			b, err := tail.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := write(b); err != nil {
				return err
			}
		}
	}
	for offset := c.Offset; ; {
		part, err := api.Log(s.ctx, id, c.Stream, offset, 0)
		if _, behind := client.Offset(err); behind && offset == c.Offset {
			return nil // nothing is stored there yet
		}
		if err != nil {
			return err
		}
		if err := write(part.Data); err != nil {
			return err
		}
		offset += int64(len(part.Data))
		if part.Complete || len(part.Data) == 0 {
			return nil
		}
	}
}
