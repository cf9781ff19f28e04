// Holds a lock of `ringfence serve`. Needs only Go's standard library.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
)

type event struct {
	Event, Why string
	Fence      uint64
}

// hold passes each event of a lock to told. Cancel the context to release the lock.
func hold(ctx context.Context, path string, order map[string]string, told func(event)) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	body, _ := json.Marshal(order)
	request, _ := http.NewRequestWithContext(ctx, "POST", "http://localhost/v1/hold", bytes.NewReader(body))
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for lines := json.NewDecoder(answer.Body); ; {
		var one event
		if err := lines.Decode(&one); err != nil {
			return err
		}
		told(one)
	}
}

func main() {
	path, name, counter := os.Args[1], os.Args[2], os.Args[3]
	rounds, _ := strconv.Atoi(os.Args[4])
	if rounds == 0 {
		why := "the service has gone"
		hold(context.Background(), path, map[string]string{"name": name, "ttl": "2s"}, func(one event) {
			switch one.Event {
			case "held":
				fmt.Println("held", one.Fence)
			case "lost":
				why = one.Why
			}
		})
		fmt.Println("lost:", why)
		os.Exit(79)
	}
	for ; rounds > 0; rounds-- {
		ctx, release := context.WithCancel(context.Background())
		hold(ctx, path, map[string]string{"name": name, "ttl": "10s"}, func(one event) {
			if one.Event != "held" {
				return
			}
			text, _ := os.ReadFile(counter)
			var count, fence uint64
			fmt.Sscan(string(text), &count, &fence)
			if one.Fence <= fence {
				fmt.Println("the fence", one.Fence, "is not above", fence)
				os.Exit(1)
			}
			os.WriteFile(counter, []byte(fmt.Sprint(count+1, one.Fence)), 0o644)
			release()
		})
		release()
	}
}
