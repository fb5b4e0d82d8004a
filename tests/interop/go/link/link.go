// SPDX-License-Identifier: Apache-2.0

// Package link reads one JSON request a line from stdin and answers one JSON line each on stdout, in any order.
package link

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Message is what a test asks to be sent.
type Message struct {
	Topic       string            `json:"topic"`
	Body        string            `json:"body"`
	Size        int               `json:"size"`
	Tags        string            `json:"tags"`
	Keys        string            `json:"keys"`
	Properties  map[string]string `json:"properties"`
	DelayLevel  int               `json:"delayLevel"`
	DelayMs     int64             `json:"delayMs"`
	ShardingKey string            `json:"shardingKey"`
	Local       string            `json:"local"`
}

// Bytes of the body: the text, or so many bytes of a fixed pattern.
func (m Message) Bytes() []byte {
	if m.Size == 0 {
		return []byte(m.Body)
	}
	bytes := make([]byte, m.Size)
	for i := range bytes {
		bytes[i] = byte('a' + i%26)
	}
	return bytes
}

// Subscription of a consumer.
type Subscription struct {
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
	Type       string `json:"type"`
}

// Request carries the arguments of every operation.
type Request struct {
	ID            int            `json:"id"`
	Op            string         `json:"op"`
	Name          string         `json:"name"`
	Namesrv       string         `json:"namesrv"`
	Group         string         `json:"group"`
	Kind          string         `json:"kind"`
	Start         string         `json:"start"`
	Producer      string         `json:"producer"`
	Mode          string         `json:"mode"`
	Messages      []Message      `json:"messages"`
	Message       Message        `json:"message"`
	Subscriptions []Subscription `json:"subscriptions"`
	FailTimes     int            `json:"failTimes"`
	DelayLevel    int            `json:"delayLevel"`
	MaxReconsume  *int           `json:"maxReconsume"`
	From          int            `json:"from"`
	AccessKey     string         `json:"accessKey"`
	SecretKey     string         `json:"secretKey"`
	Check         string         `json:"check"`
	Reply         bool           `json:"reply"`
	TimeoutMs     int64          `json:"timeoutMs"`
	Topic         string         `json:"topic"`
	Topics        []string       `json:"topics"`
	Broker        string         `json:"broker"`
	InvisibleMs   int64          `json:"invisibleMs"`
	Handle        int            `json:"handle"`
	Max           int            `json:"max"`
	Recall        string         `json:"recall"`
}

// Row is one answer's object.
type Row map[string]any

// PutBody reports long bodies by length only.
func PutBody(row Row, body []byte) {
	row["size"] = len(body)
	if len(body) <= 2000 {
		row["body"] = string(body)
	}
}

// Seen is what one consumer received, in order.
type Seen struct {
	mutex sync.Mutex
	rows  []Row
}

// Add one message.
func (s *Seen) Add(row Row) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.rows = append(s.rows, row)
}

// Since returns what came after the first `from`.
func (s *Seen) Since(from int) []Row {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if from >= len(s.rows) {
		return []Row{}
	}
	return append([]Row{}, s.rows[from:]...)
}

// Serve answers requests until stdin ends.
func Serve(handle func(Request) (any, error)) {
	answers := os.Stdout
	os.Stdout = os.Stderr // whatever a library prints must not mix with the answers
	var mutex sync.Mutex
	answer := func(reply Row) {
		line, err := json.Marshal(reply)
		if err != nil {
			line = []byte(fmt.Sprintf(`{"id":%v,"error":"unserialisable answer"}`, reply["id"]))
		}
		mutex.Lock()
		defer mutex.Unlock()
		_, _ = answers.Write(append(line, '\n'))
	}
	answer(Row{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), 1<<26)
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			answer(Row{"id": request.ID, "error": err.Error()})
			continue
		}
		go func() {
			defer func() {
				if problem := recover(); problem != nil {
					answer(Row{"id": request.ID, "error": fmt.Sprintf("panic: %v", problem)})
				}
			}()
			result, err := handle(request)
			if err != nil {
				answer(Row{"id": request.ID, "error": err.Error()})
				return
			}
			answer(Row{"id": request.ID, "ok": result})
		}()
	}
	os.Exit(0)
}
