package kafkatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

type ports struct{ client, internal, controller int }

// Ports below those that systems give to outgoing connections: one that is free
// while the broker is stopped stays free for its restart.
const lowestPort, highestPort = 20000, 32000

func freePorts() (ports, error) {
	var found []int
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp", address(port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return ports{}, fmt.Errorf("finding a free port: %w", err)
		}
		// Held until all are found, so that they differ.
		defer l.Close()
		if found = append(found, port); len(found) == 3 {
			return ports{client: found[0], internal: found[1], controller: found[2]}, nil
		}
	}
	return ports{}, fmt.Errorf("finding free ports: none from %d to %d", lowestPort, highestPort)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
