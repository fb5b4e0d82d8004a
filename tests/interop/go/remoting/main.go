// SPDX-License-Identifier: Apache-2.0

// Command remoting drives github.com/apache/rocketmq-client-go/v2.
package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"aerobee/interop/link"
)

type driver struct {
	mutex         sync.Mutex
	producers     map[string]rocketmq.Producer
	transactional map[string]rocketmq.TransactionProducer
	seen          map[string]*link.Seen
	closers       map[string]func() error
}

func main() {
	rlog.SetLogLevel("error")
	d := &driver{
		producers:     map[string]rocketmq.Producer{},
		transactional: map[string]rocketmq.TransactionProducer{},
		seen:          map[string]*link.Seen{},
		closers:       map[string]func() error{},
	}
	link.Serve(d.handle)
}

func (d *driver) handle(request link.Request) (any, error) {
	switch request.Op {
	case "producer":
		return nil, d.startProducer(request)
	case "send":
		return d.send(request)
	case "consumer":
		return nil, d.startConsumer(request)
	case "received":
		d.mutex.Lock()
		defer d.mutex.Unlock()
		return d.seen[request.Name].Since(request.From), nil
	case "close":
		d.mutex.Lock()
		stop := d.closers[request.Name]
		delete(d.closers, request.Name)
		d.mutex.Unlock()
		if stop == nil {
			return nil, nil
		}
		return nil, stop()
	case "createTopic", "deleteTopic", "topics", "groups", "queues":
		return administer(request)
	}
	return nil, fmt.Errorf("unknown op %s", request.Op)
}

func (d *driver) keep(name string, stop func() error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.closers[name] = stop
}

func resolver(request link.Request) primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{request.Namesrv})
}

func credentials(request link.Request) primitive.Credentials {
	return primitive.Credentials{AccessKey: request.AccessKey, SecretKey: request.SecretKey}
}

// ---------------------------------------------------------------- producers

type decisions struct{ check string }

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(message.GetProperty("local"))
}

func (d decisions) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return state(d.check)
}

func (d *driver) startProducer(request link.Request) error {
	options := []producer.Option{
		producer.WithNsResolver(resolver(request)),
		producer.WithGroupName(request.Group),
		producer.WithInstanceName(request.Name),
		producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
		producer.WithCompressMsgBodyOverHowmuch(1 << 30),
	}
	if request.AccessKey != "" {
		options = append(options, producer.WithCredentials(credentials(request)))
	}
	if request.Check != "" {
		made, err := rocketmq.NewTransactionProducer(decisions{request.Check}, options...)
		if err != nil {
			return err
		}
		if err := made.Start(); err != nil {
			return err
		}
		d.mutex.Lock()
		d.transactional[request.Name] = made
		d.mutex.Unlock()
		d.keep(request.Name, made.Shutdown)
		return nil
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	d.mutex.Lock()
	d.producers[request.Name] = made
	d.mutex.Unlock()
	d.keep(request.Name, made.Shutdown)
	return nil
}

func message(spec link.Message) *primitive.Message {
	made := primitive.NewMessage(spec.Topic, spec.Bytes())
	for key, value := range spec.Properties {
		made.WithProperty(key, value)
	}
	if spec.Tags != "" {
		made.WithTag(spec.Tags)
	}
	if spec.Keys != "" {
		made.WithKeys(strings.Split(spec.Keys, " "))
	}
	if spec.DelayLevel != 0 {
		made.WithDelayTimeLevel(spec.DelayLevel)
	}
	if spec.DelayMs != 0 {
		made.WithProperty("TIMER_DELIVER_MS", strconv.FormatInt(time.Now().UnixMilli()+spec.DelayMs, 10))
	}
	if spec.ShardingKey != "" {
		made.WithShardingKey(spec.ShardingKey)
	}
	if spec.Local != "" {
		made.WithProperty("local", spec.Local)
	}
	return made
}

func sent(result *primitive.SendResult) link.Row {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprintf("status %d", result.Status)
	}
	row := link.Row{"status": status, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID, "offset": result.QueueOffset}
	if result.MessageQueue != nil {
		row["queueId"] = result.MessageQueue.QueueId
	}
	return row
}

func (d *driver) send(request link.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d.mutex.Lock()
	normal, transactional := d.producers[request.Producer], d.transactional[request.Producer]
	d.mutex.Unlock()
	var messages []*primitive.Message
	for _, spec := range request.Messages {
		messages = append(messages, message(spec))
	}
	rows := []link.Row{}
	switch request.Mode {
	case "batch":
		result, err := normal.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		return append(rows, sent(result)), nil
	case "async":
		return sendAsync(ctx, normal, messages)
	}
	for _, each := range messages {
		if request.Mode == "oneway" {
			if err := normal.SendOneWay(ctx, each); err != nil {
				return nil, err
			}
			continue
		}
		if transactional != nil {
			result, err := transactional.SendMessageInTransaction(ctx, each)
			if err != nil {
				return nil, err
			}
			rows = append(rows, sent(result.SendResult))
			continue
		}
		result, err := normal.SendSync(ctx, each)
		if err != nil {
			return nil, err
		}
		rows = append(rows, sent(result))
	}
	return rows, nil
}

func sendAsync(ctx context.Context, normal rocketmq.Producer, messages []*primitive.Message) (any, error) {
	type outcome struct {
		row link.Row
		err error
	}
	outcomes := make(chan outcome, len(messages))
	for _, each := range messages {
		err := normal.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				outcomes <- outcome{err: err}
				return
			}
			outcomes <- outcome{row: sent(result)}
		}, each)
		if err != nil {
			return nil, err
		}
	}
	rows := []link.Row{}
	for range messages {
		select {
		case each := <-outcomes:
			if each.err != nil {
				return nil, each.err
			}
			rows = append(rows, each.row)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return rows, nil
}

// ---------------------------------------------------------------- consumers

func received(message *primitive.MessageExt) link.Row {
	row := link.Row{
		"topic": message.Topic, "msgId": message.MsgId, "tags": message.GetTags(), "keys": message.GetKeys(),
		"offset": message.QueueOffset, "attempt": message.ReconsumeTimes + 1, "properties": message.GetProperties(),
		"bornTimestamp": message.BornTimestamp, "storeTimestamp": message.StoreTimestamp,
		"at": time.Now().UnixMilli(),
	}
	if message.Queue != nil {
		row["queueId"] = message.Queue.QueueId
	}
	link.PutBody(row, message.Body)
	return row
}

func selector(subscription link.Subscription) consumer.MessageSelector {
	kind := consumer.TAG
	if subscription.Type == "SQL92" {
		kind = consumer.SQL92
	}
	return consumer.MessageSelector{Type: kind, Expression: subscription.Expression}
}

func (d *driver) startConsumer(request link.Request) error {
	seen := &link.Seen{}
	d.mutex.Lock()
	d.seen[request.Name] = seen
	d.mutex.Unlock()
	options := []consumer.Option{
		consumer.WithNsResolver(resolver(request)),
		consumer.WithGroupName(request.Group),
		consumer.WithInstance(request.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(request.Kind == "orderly"),
	}
	if request.AccessKey != "" {
		options = append(options, consumer.WithCredentials(credentials(request)))
	}
	if request.Kind == "broadcast" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if request.MaxReconsume != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(*request.MaxReconsume)))
	}
	if request.Kind == "lite" {
		return d.startPull(request, options, seen)
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	for _, each := range request.Subscriptions {
		err := made.Subscribe(each.Topic, selector(each),
			func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				return take(ctx, request, seen, messages)
			})
		if err != nil {
			return err
		}
	}
	if err := made.Start(); err != nil {
		return err
	}
	d.keep(request.Name, made.Shutdown)
	return nil
}

func take(
	ctx context.Context, request link.Request, seen *link.Seen, messages []*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	result := consumer.ConsumeSuccess
	for _, each := range messages {
		seen.Add(received(each))
		if int(each.ReconsumeTimes) < request.FailTimes {
			result = consumer.ConsumeRetryLater
		}
	}
	if result == consumer.ConsumeRetryLater {
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = request.DelayLevel
		}
		if request.Kind == "orderly" {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
	}
	return result, nil
}

func (d *driver) startPull(request link.Request, options []consumer.Option, seen *link.Seen) error {
	made, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return err
	}
	for _, each := range request.Subscriptions {
		if err := made.Subscribe(each.Topic, selector(each)); err != nil {
			return err
		}
	}
	if err := made.Start(); err != nil {
		return err
	}
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case <-stopped:
				return
			default:
			}
			found, err := made.Poll(context.Background(), time.Second)
			if err != nil {
				continue // nothing within the second
			}
			for _, each := range found.GetMsgList() {
				seen.Add(received(each))
			}
			made.ACK(context.Background(), found, consumer.ConsumeSuccess)
		}
	}()
	d.keep(request.Name, func() error {
		close(stopped)
		return made.Shutdown()
	})
	return nil
}

// ---------------------------------------------------------------- admin

func administer(request link.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	made, err := admin.NewAdmin(admin.WithResolver(resolver(request)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = made.Close() }()
	switch request.Op {
	case "createTopic":
		return nil, made.CreateTopic(ctx, admin.WithTopicCreate(request.Topic),
			admin.WithBrokerAddrCreate(request.Broker), admin.WithReadQueueNums(4), admin.WithWriteQueueNums(4))
	case "deleteTopic":
		return nil, made.DeleteTopic(ctx, admin.WithTopicDelete(request.Topic),
			admin.WithBrokerAddrDelete(request.Broker), admin.WithNameSrvAddr([]string{request.Namesrv}))
	case "topics":
		list, err := made.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return list.TopicList, nil
	case "groups":
		groups, err := made.GetAllSubscriptionGroup(ctx, request.Broker, 10*time.Second)
		if err != nil {
			return nil, err
		}
		names := []string{}
		for name := range groups.SubscriptionGroupTable {
			names = append(names, name)
		}
		return names, nil
	}
	queues, err := made.FetchPublishMessageQueues(ctx, request.Topic)
	if err != nil {
		return nil, err
	}
	rows := []link.Row{}
	for _, each := range queues {
		rows = append(rows, link.Row{"broker": each.BrokerName, "queueId": each.QueueId})
	}
	return rows, nil
}
