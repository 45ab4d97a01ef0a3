// A static Go program as server and client of HTTP: static serve ADDRESS | fetch URL | put URL FILE | get URL COUNT AT-A-TIME |
// dial ADDRESS | names NAME
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type zeros struct{ seed byte }

func (z *zeros) Read(p []byte) (int, error) {
	for i := range p {
		z.seed = z.seed*31 + 7
		p[i] = z.seed
	}
	return len(p), nil
}

func serve(address string) error {
	http.HandleFunc("/who", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		own := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintln(w, host, own)
	})
	http.HandleFunc("/put", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		count, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%x %d %v\n", sum.Sum(nil), count, err)
	})
	http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		count, _ := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		io.CopyN(w, &zeros{}, count)
	})
	http.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "small") })
	return http.ListenAndServe(address, nil)
}

func told(r *http.Response, err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	sum := sha256.New()
	count, err := io.Copy(sum, r.Body)
	fmt.Printf("%d, %d bytes, %x, %v\n", r.StatusCode, count, sum.Sum(nil)[:8], err)
}

func get(url string, count, atATime int) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	var group sync.WaitGroup
	var right, next int64
	var once sync.Once
	begin := time.Now()
	for range atATime {
		group.Add(1)
		go func() {
			defer group.Done()
			for atomic.AddInt64(&next, 1) <= int64(count) {
				r, err := client.Get(url)
				if err != nil {
					once.Do(func() { fmt.Fprintln(os.Stderr, err) })
					continue
				}
				if body, err := io.ReadAll(r.Body); err == nil && string(body) == "small\n" {
					atomic.AddInt64(&right, 1)
				}
				r.Body.Close()
			}
		}()
	}
	group.Wait()
	fmt.Fprintf(os.Stderr, "%.0f a second\n", float64(count)/time.Since(begin).Seconds())
	fmt.Println(right, "of", count)
}

func dial(address string) {
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	var number syscall.Errno
	switch {
	case err == nil:
		connection.Close()
		fmt.Println("connected")
	case errors.As(err, &number):
		fmt.Println(number.Error())
	default:
		fmt.Println(err)
	}
}

func names(name string) {
	context, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(context, name)
	var unknown *net.DNSError
	if errors.As(err, &unknown) && unknown.IsNotFound {
		fmt.Println("no such name")
		return
	}
	sort.Strings(found)
	fmt.Println(len(found), found[:min(4, len(found))], err)
}

func main() {
	words := os.Args[1:]
	switch words[0] {
	case "serve":
		fmt.Println(serve(words[1]))
		os.Exit(1)
	case "fetch":
		told(http.Get(words[1]))
	case "put":
		file, err := os.Open(words[2])
		if err != nil {
			panic(err)
		}
		told(http.Post(words[1], "application/octet-stream", file))
	case "get":
		count, _ := strconv.Atoi(words[2])
		atATime, _ := strconv.Atoi(words[3])
		get(words[1], count, atATime)
	case "dial":
		dial(words[1])
	case "names":
		names(words[1])
	}
}
