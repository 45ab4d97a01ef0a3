//! A worker's readiness: nothing is missed, and nothing wakes it without cause.

use super::*;
use crate::cells::{Cells, News};
use std::time::{Duration, Instant};

/// So many sleeps make a link calm.
const CALM: u32 = 20;

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(5))
}

fn ready(news: &[News], slot: u32) -> bool {
    news.iter()
        .any(|one| matches!(one, News::Ready(_, found) if *found == slot))
}

#[test]
fn a_sleeping_worker_hears_of_connections_bytes_room_and_ends() {
    let (client, server) = link();
    let mut cells = Cells::new().unwrap();
    let key = cells.add_link(Arc::clone(&server)).unwrap();
    let cell = cells.cell(key).unwrap();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let program = std::thread::spawn(move || {
        let pause = || std::thread::sleep(Duration::from_millis(20));
        pause();
        let mut lane = dial(&client);
        gone.recv().unwrap();
        pause();
        assert_eq!(write(&mut lane, b"x"), 1);
        gone.recv().unwrap();
        pause();
        // Makes room.
        assert_eq!(read(&mut lane).len(), 2048);
        gone.recv().unwrap();
        pause();
        drop(lane);
        gone.recv().unwrap();
        pause();
        drop(client);
    });
    let mut news = Vec::new();
    let mut hear = |cells: &mut Cells, wanted: &dyn Fn(&News) -> bool| {
        let until = soon();
        loop {
            news.clear();
            cells.sleep(&mut news, until);
            if let Some(index) = news.iter().position(wanted) {
                return news.swap_remove(index);
            }
            assert!(Instant::now() < until.unwrap());
        }
    };
    let opened = hear(&mut cells, &|one| matches!(one, News::Opened(..)));
    let News::Opened(_, opened) = opened else {
        panic!("{opened:?}")
    };
    let slot = opened.loan.handle.index;
    let mut lane = Lane::accepted(&server, opened.loan);
    cells.watch_anchor(key, slot, lane.anchor_mut()).unwrap();
    lane.attach_cell(cell);
    go.send(()).unwrap();
    hear(&mut cells, &|one| ready(std::slice::from_ref(one), slot));
    assert_eq!(read(&mut lane), b"x");
    assert_eq!(place(&mut lane, 0, &[1; 3000]), 2048);
    lane.publish(2048).unwrap();
    lane.request_space_news();
    go.send(()).unwrap();
    hear(&mut cells, &|one| ready(std::slice::from_ref(one), slot));
    assert_eq!(lane.limit(), Ok(4096));
    go.send(()).unwrap();
    hear(
        &mut cells,
        &|one| matches!(one, News::Token(_, found, true) if *found == slot),
    );
    lane.on_token(true);
    assert!(lane.has_hung_up());
    go.send(()).unwrap();
    hear(&mut cells, &|one| matches!(one, News::Ended(_)));
    program.join().unwrap();
}

#[test]
fn a_token_that_went_to_another_worker_is_passed_on() {
    let (client, server) = link();
    let (mut program, mut lane) = connect(&client, &server);
    let mut workers = [Cells::new().unwrap(), Cells::new().unwrap()];
    let first = workers[0].add_link(Arc::clone(&server)).unwrap();
    let second = workers[1].add_shared_link(Arc::clone(&server)).unwrap();
    lane.attach_cell(workers[0].cell(first).unwrap());
    // The first sleeps, and the socket is about to move: the program has seen where it was, not where it goes.
    let mut news = Vec::new();
    for _ in 0..CALM {
        workers[0].sleep(&mut news, Some(Instant::now()));
    }
    let slot = lane.handle().index;
    let anchor = lane.anchor_mut();
    workers[1].watch_anchor(second, slot, anchor).unwrap();
    write(&mut program, b"x");
    workers[0].sleep(&mut news, Some(Instant::now()));
    assert!(news.is_empty(), "{news:?}");
    workers[1].sleep(&mut news, soon());
    assert!(matches!(news[..], [News::Token(..)]), "{news:?}");
    assert!(workers[1].has_marks_for_others(second));
    news.clear();
    workers[0].wake_link(first);
    workers[0].sleep(&mut news, soon());
    assert!(ready(&news, slot), "{news:?}");
    assert!(!workers[1].has_marks_for_others(second));
}

#[test]
fn where_there_was_news_of_late_more_costs_no_token() {
    let (client, server) = link();
    let (mut program, mut lane) = connect(&client, &server);
    let mut cells = Cells::new().unwrap();
    let key = cells.add_link(Arc::clone(&server)).unwrap();
    let slot = lane.handle().index;
    cells.watch_anchor(key, slot, lane.anchor_mut()).unwrap();
    lane.attach_cell(cells.cell(key).unwrap());
    let asleep = |cells: &Cells| {
        let map = server.cell(server.role(), cells.cell(key).unwrap());
        map.unwrap()
            .asleep
            .load(std::sync::atomic::Ordering::Relaxed)
            != 0
    };
    let mut news = Vec::new();
    let mut sleep = |cells: &mut Cells, times: u32| {
        for _ in 0..times {
            cells.sleep(&mut news, Some(Instant::now()));
        }
        std::mem::take(&mut news)
    };
    sleep(&mut cells, 1);
    assert!(!asleep(&cells));
    sleep(&mut cells, CALM);
    assert!(asleep(&cells));
    write(&mut program, b"x");
    assert!(ready(&sleep(&mut cells, 1), slot));
    sleep(&mut cells, 2);
    assert!(!asleep(&cells));
    sleep(&mut cells, CALM);
    assert!(asleep(&cells));
}

#[test]
fn an_idle_worker_sleeps() {
    let (client, server) = link();
    let mut cells = Cells::new().unwrap();
    cells.add_link(Arc::clone(&server)).unwrap();
    let mut news = Vec::new();
    let start = Instant::now();
    let until = start + Duration::from_millis(50);
    let mut rounds = 0;
    while Instant::now() < until {
        cells.sleep(&mut news, Some(until));
        rounds += 1;
    }
    assert!(news.is_empty() && rounds <= 5, "{rounds}");
    drop(client);
}

#[test]
fn tokens_are_taken_before_they_fill_the_anchor() {
    let (client, server) = link();
    let (one, mut other) = connect(&client, &server);
    let mut one = one;
    for _ in 0..5000 {
        assert!(one.anchor_mut().ring());
        other.on_token(false);
    }
    assert!(!other.has_hung_up());
}
