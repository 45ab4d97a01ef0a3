// Echo over Go's net package, which makes its system calls itself: echo server|client PORT.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"sync"
)

const connections = 12

func serve(address string) {
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		panic(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
			connection.(*net.TCPConn).CloseWrite()
		}()
	}
}

func talk(address string, number int64) bool {
	source := rand.New(rand.NewSource(number))
	sent := make([]byte, 1_500_000+number)
	source.Read(sent)
	connection, err := net.Dial("tcp4", address)
	if err != nil {
		fmt.Println(err)
		return false
	}
	defer connection.Close()
	go func() {
		for rest := sent; len(rest) > 0; {
			size := min(len(rest), 1+source.Intn(100_000))
			connection.Write(rest[:size])
			rest = rest[size:]
		}
		connection.(*net.TCPConn).CloseWrite()
	}()
	received, err := io.ReadAll(connection)
	return err == nil && bytes.Equal(received, sent)
}

func main() {
	address := "127.0.0.1:" + os.Args[2]
	if os.Args[1] == "server" {
		serve(address)
	}
	var group sync.WaitGroup
	var mutex sync.Mutex
	right := 0
	for number := int64(0); number < connections; number++ {
		group.Add(1)
		go func(number int64) {
			defer group.Done()
			if talk(address, number) {
				mutex.Lock()
				right++
				mutex.Unlock()
			}
		}(number)
	}
	group.Wait()
	fmt.Println(right, "of", connections, "connections came back as sent")
}
