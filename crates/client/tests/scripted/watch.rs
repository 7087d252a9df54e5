//! Watching scripted nodes: a stream that breaks goes on elsewhere without loss or repeat, and what is lost is said.

use std::time::Duration;

use crate::calls::{problem, settings};
use crate::node::{Node, Reply, nobody};
use hapax_api::watch::{Event, OperationEvent, Position, PositionEvent, WatchQuery};
use hapax_api::{Code, Problem};
use hapax_client::{Client, Outcome, Settings, Watch};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn position(index: u64) -> Position {
    format!("1.0.{index}.0:0").parse().unwrap()
}

fn operation(index: u64) -> Event {
    Event::Operation(OperationEvent {
        position: position(index),
        operation_id: "op_1".parse().unwrap(),
        namespace: "n".parse().unwrap(),
        state: hapax_api::operation::State::Executing,
        attempt: 1,
        execution_id: Some("ex_1".parse().unwrap()),
        escalated: false,
        quarantined: false,
    })
}

fn quiet(index: u64) -> Event {
    Event::Position(PositionEvent { position: position(index) })
}

fn text(events: &[Event]) -> String {
    events.iter().map(|event| event.to_text().unwrap()).collect()
}

/// A stream of these events, which then stays open and silent.
fn stays(events: &[Event]) -> Reply {
    Reply::Stream { body: text(events), ends: false }
}

/// A stream of these events, and of `rest` of another one, which then breaks off.
fn breaks(events: &[Event], rest: &str) -> Reply {
    Reply::Stream { body: text(events) + rest, ends: true }
}

fn watch(urls: &[&str], from: Option<Position>) -> Watch {
    let settings = Settings { deadline: Duration::from_secs(2), ..settings(urls) };
    Client::new(settings).unwrap().watch(WatchQuery { from, namespace: None })
}

async fn next(watch: &mut Watch) -> Outcome<OperationEvent> {
    timeout(PATIENCE, watch.next()).await.unwrap()
}

async fn next_index(watch: &mut Watch) -> u64 {
    next(watch).await.done().expect("an event").position.revision.index
}

fn lines(node: &Node) -> Vec<String> {
    node.asked().into_iter().map(|asked| asked.line.replace(" HTTP/1.1", "")).collect()
}

#[tokio::test]
async fn events_come_in_order_with_their_positions() {
    let node = Node::start([stays(&[quiet(4), operation(5), quiet(7), operation(8)])]).await;
    let client = Client::new(settings(&[&node.url])).unwrap();
    let mut watch = client.watch(WatchQuery { from: None, namespace: Some("n".parse().unwrap()) });
    assert_eq!(watch.position(), None);
    assert_eq!(next_index(&mut watch).await, 5);
    // What arrived and was not handed out is not behind the position.
    assert_eq!(watch.position(), Some(position(5)));
    assert_eq!(next_index(&mut watch).await, 8);
    assert_eq!(watch.position(), Some(position(8)));
    assert_eq!(lines(&node), ["GET /v1/watch?namespace=n"]);
    assert!(node.asked()[0].head.contains("authorization: bearer dev"));
}

#[tokio::test]
async fn a_broken_stream_goes_on_from_the_last_whole_event() {
    // The first node breaks off within event 6, the second after a position; nothing is lost, and nothing comes twice.
    let half = &operation(6).to_text().unwrap()[..40];
    let first = Node::start([breaks(&[operation(5)], half)]).await;
    let second = Node::start([breaks(&[operation(6), quiet(9)], "")]).await;
    let third = Node::start([stays(&[operation(10)])]).await;
    let mut watch = watch(&[&first.url, &second.url, &third.url], Some(position(4)));
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(next_index(&mut watch).await);
    }
    assert_eq!(seen, [5, 6, 10]);
    assert_eq!(lines(&first), ["GET /v1/watch?from=1.0.4.0%3A0"]);
    assert_eq!(lines(&second), ["GET /v1/watch?from=1.0.5.0%3A0"]);
    assert_eq!(lines(&third), ["GET /v1/watch?from=1.0.9.0%3A0"]);
}

#[tokio::test]
async fn a_silent_node_is_left() {
    let silent = Node::start([stays(&[quiet(4)])]).await;
    let other = Node::start([stays(&[operation(5)])]).await;
    let settings = Settings { watch_silence: Duration::from_millis(50), ..settings(&[&silent.url, &other.url]) };
    let mut watch = Client::new(settings).unwrap().watch(WatchQuery::default());
    assert_eq!(next_index(&mut watch).await, 5);
    assert_eq!(lines(&other), ["GET /v1/watch?from=1.0.4.0%3A0"]);
}

#[tokio::test]
async fn a_stream_that_is_not_understood_is_not_guessed_at() {
    let broken = Node::start([breaks(&[operation(5)], "event: operation\ndata: {}\n\n")]).await;
    let other = Node::start([stays(&[operation(5), operation(6)])]).await;
    let mut watch = watch(&[&broken.url, &other.url], Some(position(4)));
    assert_eq!((next_index(&mut watch).await, next_index(&mut watch).await), (5, 6));
}

#[tokio::test]
async fn what_was_compacted_is_said_and_stays_said() {
    let compacted = Outcome::Refused(Problem::new(Code::WatchCompacted));
    let node = Node::start([problem(Code::WatchCompacted)]).await;
    let mut refused = watch(&[&node.url], Some(position(1)));
    assert_eq!(next(&mut refused).await, compacted);
    assert_eq!(next(&mut refused).await, compacted);
    assert_eq!(node.asked().len(), 1);
    // In the middle of a stream, after what came before it.
    let ends = Event::Problem(Box::new(Problem::new(Code::WatchCompacted)));
    let node = Node::start([stays(&[operation(5), ends])]).await;
    let mut ended = watch(&[&node.url], None);
    assert_eq!(next_index(&mut ended).await, 5);
    assert_eq!(next(&mut ended).await, compacted);
    assert_eq!(next(&mut ended).await, compacted);
    assert_eq!((node.asked().len(), ended.position()), (1, Some(position(5))));
}

#[tokio::test]
async fn a_node_that_cannot_stream_is_passed_over() {
    let busy = Node::start([problem(Code::StoreUnavailable)]).await;
    let ends = Event::Problem(Box::new(Problem::new(Code::StoreUnavailable)));
    let draining = Node::start([stays(&[operation(5), ends])]).await;
    let good = Node::start([stays(&[operation(6)])]).await;
    let gone = nobody().await;
    let mut watch = watch(&[&busy.url, &gone, &draining.url, &good.url], Some(position(4)));
    assert_eq!((next_index(&mut watch).await, next_index(&mut watch).await), (5, 6));
    assert_eq!(lines(&good), ["GET /v1/watch?from=1.0.5.0%3A0"]);
}

#[tokio::test]
async fn nodes_that_only_accept_are_given_up_and_may_be_asked_again() {
    let node = Node::start([Reply::Stream { body: String::new(), ends: true }]).await;
    let settings = Settings { deadline: Duration::from_millis(60), ..settings(&[&node.url]) };
    let mut watch = Client::new(settings).unwrap().watch(WatchQuery { from: Some(position(4)), namespace: None });
    for _ in 0..2 {
        let before = node.asked().len();
        let Outcome::Unavailable(failure) = next(&mut watch).await else { panic!("unavailable") };
        assert_eq!(failure.detail, "the stream ended");
        assert!(node.asked().len() > before);
    }
    assert_eq!(watch.position(), Some(position(4)));
    // The credential is not asked about again and again.
    let node = Node::start([problem(Code::AuthInvalid)]).await;
    let mut watch = Client::new(Settings::new([node.url.as_str()], "dev")).unwrap().watch(WatchQuery::default());
    assert_eq!(next(&mut watch).await, Outcome::Refused(Problem::new(Code::AuthInvalid)));
}

#[tokio::test]
async fn dropping_the_wait_loses_nothing() {
    let node = Node::start([stays(&[operation(5)])]).await;
    let mut watch = watch(&[&node.url], None);
    assert_eq!(next_index(&mut watch).await, 5);
    assert!(timeout(Duration::from_millis(20), watch.next()).await.is_err());
    assert_eq!((node.asked().len(), watch.position()), (1, Some(position(5))));
}
