// The Go clients behind the line protocol of ../README.md.
//
// usage: peer redsync|redislock URL,URL,…
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var background = context.Background()

// errRefused is the result of a library that did not get the lock in one attempt.
var errRefused = errors.New("refused")

// A library takes a lock, waiting or not, and returns the function that releases it.
type library func(name string, ttl time.Duration, wait bool) (release func() error, err error)

func withRedsync(clients []*redis.Client) library {
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	manager := redsync.New(pools...)
	return func(name string, ttl time.Duration, wait bool) (func() error, error) {
		tries := 1
		if wait {
			tries = 1_000_000
		}
		mutex := manager.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(tries))
		if err := mutex.Lock(); err != nil {
			var taken *redsync.ErrTaken
			if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
				return nil, errRefused
			}
			return nil, err
		}
		return func() error {
			_, err := mutex.Unlock()
			return err
		}, nil
	}
}

func withRedislock(clients []*redis.Client) library {
	locker := redislock.New(clients[0])
	return func(name string, ttl time.Duration, wait bool) (func() error, error) {
		options := &redislock.Options{}
		if wait {
			options.RetryStrategy = redislock.LinearBackoff(100 * time.Millisecond)
		}
		lock, err := locker.Obtain(background, name, ttl, options)
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, errRefused
		} else if err != nil {
			return nil, err
		}
		return func() error { return lock.Release(background) }, nil
	}
}

// contend takes the lock repeatedly. The witness is a file that only one client can create.
func contend(lock library, name string, ttl, length time.Duration, witness string) (string, error) {
	entered := 0
	for end := time.Now().Add(length); time.Now().Before(end); {
		release, err := lock(name, ttl, false)
		if errors.Is(err, errRefused) {
			time.Sleep(5 * time.Millisecond)
			continue
		} else if err != nil {
			return "", err
		}
		file, err := os.OpenFile(witness, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "broken another client was inside", nil
		}
		file.Close()
		entered++
		time.Sleep(2 * time.Millisecond)
		os.Remove(witness)
		if err := release(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("entered %d", entered), nil
}

// together runs work for all tasks at once and returns how long it took.
func together(tasks int, work func(task int) error) (time.Duration, error) {
	var group sync.WaitGroup
	failures := make(chan error, tasks)
	begun := time.Now()
	for task := range tasks {
		group.Go(func() { failures <- work(task) })
	}
	group.Wait()
	took := time.Since(begun)
	for range tasks {
		if err := <-failures; err != nil {
			return 0, err
		}
	}
	return took, nil
}

// againAndAgain locks and releases until the time is over. It times the wait if the lock is held,
// otherwise both.
func againAndAgain(lock library, tasks int, length time.Duration, nameOf func(int) string, ttl, hold time.Duration) (string, error) {
	counts, times := make([]int, tasks), make([][]time.Duration, tasks)
	took, err := together(tasks, func(task int) error {
		end := time.Now().Add(length)
		for begun := time.Now(); begun.Before(end); begun = time.Now() {
			release, err := lock(nameOf(task), ttl, true)
			if err != nil {
				return err
			}
			if hold > 0 {
				times[task] = append(times[task], time.Since(begun))
				time.Sleep(hold)
			}
			if err := release(); err != nil {
				return err
			}
			if hold == 0 {
				times[task] = append(times[task], time.Since(begun))
			}
			counts[task]++
		}
		return nil
	})
	return report(counts, took, slices.Concat(times...)), err
}

// drain starts all tasks at once, and each takes the lock once.
func drain(lock library, tasks int, name string, ttl, hold time.Duration) (string, error) {
	took, err := together(tasks, func(int) error {
		release, err := lock(name, ttl, true)
		if err != nil {
			return err
		}
		time.Sleep(hold)
		return release()
	})
	return report(slices.Repeat([]int{1}, tasks), took, nil), err
}

func report(counts []int, took time.Duration, times []time.Duration) string {
	slices.Sort(times)
	quantile := func(q float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return float64(times[int(float64(len(times)-1)*q)].Nanoseconds()) / 1000
	}
	text, _ := json.Marshal(map[string]any{
		"counts": counts, "took_us": took.Microseconds(), "p50_us": quantile(0.5), "p99_us": quantile(0.99),
	})
	return string(text)
}

func answer(lock library, held *func() error, words []string) (string, error) {
	number := func(at int) int {
		value, _ := strconv.Atoi(words[at])
		return value
	}
	millis := func(at int) time.Duration { return time.Duration(number(at)) * time.Millisecond }
	micros := func(at int) time.Duration { return time.Duration(number(at)) * time.Microsecond }
	switch words[0] {
	case "try":
		release, err := lock(words[1], millis(2), false)
		if errors.Is(err, errRefused) {
			return "refused", nil
		}
		*held = release
		return "held", err
	case "release":
		return "released", (*held)()
	case "contend":
		return contend(lock, words[1], millis(2), millis(3), words[4])
	case "cycles":
		nameOf := func(task int) string { return fmt.Sprintf("%s:%d", words[3], task) }
		return againAndAgain(lock, number(1), millis(2), nameOf, millis(4), 0)
	case "share":
		return againAndAgain(lock, number(1), millis(2), func(int) string { return words[3] }, millis(4), micros(5))
	case "drain":
		return drain(lock, number(1), words[2], millis(3), micros(4))
	}
	return "", fmt.Errorf("unknown command: %s", words[0])
}

func main() {
	var clients []*redis.Client
	for _, url := range strings.Split(os.Args[2], ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(64)
		}
		clients = append(clients, redis.NewClient(options))
	}
	lock := map[string]func([]*redis.Client) library{"redsync": withRedsync, "redislock": withRedislock}[os.Args[1]](clients)
	var held func() error
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		reply, err := answer(lock, &held, strings.Fields(lines.Text()))
		if err != nil {
			reply = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(reply)
	}
}
