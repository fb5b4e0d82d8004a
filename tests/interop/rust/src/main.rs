// SPDX-License-Identifier: Apache-2.0

//! Drives the crate `rocketmq` (gRPC): one JSON request a line from stdin, one JSON answer a line on stdout.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType, SendReceipt};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Answer = Result<Value, Failure>;

/// The crate has no push consumer: `pushed` receives and acknowledges in a loop, `simple` waits to be asked.
struct Consumer {
    inner: SimpleConsumer,
    topic: String,
    expression: String,
    filter: FilterType,
    seen: Mutex<Vec<Value>>,
}

#[derive(Default)]
struct Driver {
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    consumers: Mutex<HashMap<String, Arc<Consumer>>>,
    loops: Mutex<HashMap<String, JoinHandle<()>>>,
    handles: Mutex<HashMap<u64, Arc<MessageView>>>,
    handle_numbers: AtomicU64,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let driver = Arc::new(Driver::default());
    println!("{}", json!({"ready": true}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let driver = driver.clone();
        tokio::spawn(async move {
            let reply = match driver.handle(&request).await {
                Ok(value) => json!({"id": request["id"], "ok": value}),
                Err(error) => json!({"id": request["id"], "error": error.to_string()}),
            };
            println!("{reply}");
        });
    }
    std::process::exit(0) // the parent is gone or done: nothing here is worth a slow shutdown
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

fn client_option(request: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(&request["namesrv"]));
    option.set_enable_tls(false);
    option.set_timeout(Duration::from_secs(10));
    option.set_long_polling_timeout(Duration::from_secs(8));
    option
}

/// Bytes a test asked for: its text, or so many bytes of a fixed pattern.
fn body(spec: &Value) -> Vec<u8> {
    match spec["size"].as_u64() {
        Some(size) => (0..size).map(|i| b'a' + (i % 26) as u8).collect(),
        None => text(&spec["body"]).into_bytes(),
    }
}

fn message(spec: &Value) -> Result<impl Message, Failure> {
    let mut builder = MessageBuilder::builder().set_topic(text(&spec["topic"])).set_body(body(spec));
    if let Some(tag) = spec["tags"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(keys) = spec["keys"].as_str() {
        builder = builder.set_keys(keys.split(' ').collect());
    }
    if let Some(properties) = spec["properties"].as_object() {
        builder = builder.set_properties(properties.iter().map(|(key, value)| (key, text(value))).collect());
    }
    if let Some(group) = spec["shardingKey"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(delay) = spec["delayMs"].as_u64() {
        let at = now_ms() + u128::from(delay);
        builder = builder.set_delivery_timestamp(at.div_ceil(1000) as i64); // it counts in seconds
    }
    if spec["local"].is_string() {
        builder = builder.enable_transaction();
    }
    Ok(builder.build()?)
}

fn row(view: &MessageView) -> Value {
    let body = view.body();
    let mut row = json!({
        "topic": view.topic(),
        "msgId": view.message_id(),
        "tags": view.tag(),
        "keys": view.keys().join(" "),
        "messageGroup": view.message_group(),
        "attempt": view.delivery_attempt(),
        "properties": view.properties(),
        "at": now_ms() as u64,
        "size": body.len(),
    });
    if body.len() <= 2000 {
        row["body"] = String::from_utf8_lossy(body).into();
    }
    row
}

fn resolution(word: &str) -> TransactionResolution {
    match word {
        "commit" => TransactionResolution::COMMIT,
        "rollback" => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

impl Consumer {
    async fn receive(&self, count: i32, invisible: Duration) -> Result<Vec<MessageView>, Failure> {
        let filter = FilterExpression::new(self.filter, self.expression.as_str());
        Ok(self.inner.receive_with(&self.topic, &filter, count, invisible).await?)
    }

    async fn push(&self) {
        loop {
            let views = match self.receive(16, Duration::from_secs(30)).await {
                Ok(views) => views,
                Err(error) => {
                    eprintln!("receive: {error}");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                }
            };
            for view in views {
                self.seen.lock().unwrap().push(row(&view));
                if let Err(error) = self.inner.ack(&view).await {
                    eprintln!("ack: {error}");
                }
            }
        }
    }
}

impl Driver {
    async fn handle(&self, request: &Value) -> Answer {
        match request["op"].as_str().unwrap_or_default() {
            "producer" => self.start_producer(request).await,
            "send" => self.send(request).await,
            "consumer" => self.start_consumer(request).await,
            "received" => {
                let consumer = self.consumer(request)?;
                let seen = consumer.seen.lock().unwrap();
                let from = request["from"].as_u64().unwrap_or_default() as usize;
                Ok(seen.iter().skip(from).cloned().collect())
            }
            "receive" => self.receive(request).await,
            "ack" => self.ack(request).await,
            "close" => self.close(request).await,
            other => Err(format!("unknown op {other}").into()),
        }
    }

    fn consumer(&self, request: &Value) -> Result<Arc<Consumer>, Failure> {
        let consumers = self.consumers.lock().unwrap();
        consumers.get(&text(&request["name"])).cloned().ok_or_else(|| "no such consumer".into())
    }

    async fn start_producer(&self, request: &Value) -> Answer {
        let mut option = ProducerOption::default();
        let topics = request["topics"].as_array().cloned().unwrap_or_default();
        option.set_topics(topics.iter().map(text).collect());
        let mut producer = match request["check"].as_str() {
            Some(check) => {
                let check = check.to_string();
                let decide = Box::new(move |_, _| resolution(&check));
                Producer::new_transaction_producer(option, client_option(request), decide)?
            }
            None => Producer::new(option, client_option(request))?,
        };
        producer.start().await?;
        self.producers.lock().unwrap().insert(text(&request["name"]), Arc::new(producer));
        Ok(Value::Null)
    }

    async fn send(&self, request: &Value) -> Answer {
        let producer = {
            let producers = self.producers.lock().unwrap();
            producers.get(&text(&request["producer"])).cloned().ok_or("no such producer")?
        };
        let specs = request["messages"].as_array().cloned().unwrap_or_default();
        if request["mode"] == "batch" {
            let batch: Result<Vec<_>, Failure> = specs.iter().map(message).collect();
            let receipts = producer.batch_send(batch?).await?;
            return Ok(receipts.iter().map(|receipt| json!({"msgId": receipt.message_id()})).collect());
        }
        let mut rows = Vec::new();
        for spec in &specs {
            let id = match spec["local"].as_str() {
                Some(word) => send_in_transaction(&producer, spec, word).await?,
                None => id_of(&producer.send(message(spec)?).await?),
            };
            rows.push(json!({"msgId": id}));
        }
        Ok(rows.into())
    }

    async fn start_consumer(&self, request: &Value) -> Answer {
        let subscription = &request["subscriptions"][0];
        let topic = text(&subscription["topic"]);
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(&request["group"]));
        option.set_topics(vec![topic.as_str()]);
        let mut inner = SimpleConsumer::new(option, client_option(request))?;
        inner.start().await?;
        let consumer = Arc::new(Consumer {
            inner,
            topic,
            expression: text(&subscription["expression"]),
            filter: if subscription["type"] == "SQL92" { FilterType::Sql } else { FilterType::Tag },
            seen: Mutex::default(),
        });
        let name = text(&request["name"]);
        if request["kind"] == "push" {
            let pushed = consumer.clone();
            let task = tokio::spawn(async move { pushed.push().await });
            self.loops.lock().unwrap().insert(name.clone(), task);
        }
        self.consumers.lock().unwrap().insert(name, consumer);
        Ok(Value::Null)
    }

    async fn receive(&self, request: &Value) -> Answer {
        let invisible = Duration::from_millis(request["invisibleMs"].as_u64().unwrap_or_default());
        let count = request["max"].as_i64().unwrap_or_default() as i32;
        let views = self.consumer(request)?.receive(count, invisible).await?;
        let mut handles = self.handles.lock().unwrap();
        let rows = views.into_iter().map(|view| {
            let handle = self.handle_numbers.fetch_add(1, Ordering::Relaxed);
            let mut row = row(&view);
            row["handle"] = handle.into();
            handles.insert(handle, Arc::new(view));
            row
        });
        Ok(rows.collect())
    }

    async fn ack(&self, request: &Value) -> Answer {
        let handle = request["handle"].as_u64().unwrap_or_default();
        let view = self.handles.lock().unwrap().get(&handle).cloned().ok_or("no such handle")?;
        self.consumer(request)?.inner.ack(view.as_ref()).await?;
        Ok(Value::Null)
    }

    async fn close(&self, request: &Value) -> Answer {
        let name = text(&request["name"]);
        let task = self.loops.lock().unwrap().remove(&name);
        if let Some(task) = task {
            task.abort();
            let _ = task.await; // it held the consumer
        }
        let producer = self.producers.lock().unwrap().remove(&name);
        if let Some(producer) = producer.and_then(Arc::into_inner) {
            producer.shutdown().await?;
        }
        let consumer = self.consumers.lock().unwrap().remove(&name);
        if let Some(consumer) = consumer.and_then(Arc::into_inner) {
            consumer.inner.shutdown().await?;
        }
        Ok(Value::Null)
    }
}

fn id_of(receipt: &SendReceipt) -> String {
    receipt.message_id().to_string()
}

async fn send_in_transaction(producer: &Producer, spec: &Value, word: &str) -> Result<String, Failure> {
    let transaction = producer.send_transaction_message(message(spec)?).await?;
    let id = transaction.message_id().to_string();
    match word {
        "commit" => transaction.commit().await?,
        "rollback" => transaction.rollback().await?,
        _ => (),
    }
    Ok(id)
}
