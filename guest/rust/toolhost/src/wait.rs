//! Operations that are waited for outside of the plugin, and the executor of async tools.

use std::{cell::RefCell, collections::BTreeMap, future::Future, pin::Pin, task::{Context, Poll, Waker}};

use serde_json::{json, Value};

use crate::{sys, Failure, Outcome};

pub type Task = Pin<Box<dyn Future<Output = Outcome>>>;
type End = Result<Value, Failure>;

#[derive(Default)]
struct State {
    task: Option<Task>,
    ends: BTreeMap<i32, Option<End>>, // by id; None while the operation is pending
}

// All of it is memory, so the host can store it and continue elsewhere.
thread_local!(static STATE: RefCell<State> = RefCell::default());

/// An operation that was started. Awaiting it returns its response; dropping it cancels it.
#[must_use = "dropping an operation cancels it"]
pub struct Operation {
    id: i32,
    refused: Option<Failure>,
}

impl Operation {
    pub(crate) fn start(op: &str, request: &Value) -> Self {
        let r = request.to_string();
        let id = unsafe { sys::call_start(op.as_ptr(), op.len(), r.as_ptr(), r.len()) };
        if id < 0 {
            return Operation { id, refused: Some(Failure::read()) };
        }
        STATE.with_borrow_mut(|s| s.ends.insert(id, None));
        Operation { id, refused: None }
    }

    /// Asks the host to end the operation soon, with the failure `canceled` unless it ends otherwise.
    pub fn cancel(&self) {
        if STATE.with_borrow(|s| matches!(s.ends.get(&self.id), Some(None))) {
            let (op, r) = ("op.cancel", json!({ "id": self.id }).to_string());
            unsafe { sys::call(op.as_ptr(), op.len(), r.as_ptr(), r.len()) };
        }
    }
}

impl Future for Operation {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<End> {
        if let Some(f) = self.refused.take() {
            return Poll::Ready(Err(f));
        }
        STATE.with_borrow_mut(|s| match s.ends.get(&self.id) {
            Some(None) => Poll::Pending,
            Some(Some(_)) => Poll::Ready(s.ends.remove(&self.id).flatten().expect("an end")),
            None => panic!("an operation was awaited after its end"),
        })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.cancel();
        STATE.with_borrow_mut(|s| s.ends.remove(&self.id));
    }
}

/// Waits for all futures at the same time, and returns what they returned, in their order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.into_iter().map(|f| Ok(Box::pin(f))).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for slot in all.iter_mut() {
            if let Ok(f) = slot {
                match f.as_mut().poll(cx) {
                    Poll::Ready(v) => *slot = Err(v),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    all.into_iter().filter_map(Result::err).collect()
}

/// Waits for the first future to end, and returns its number and what it returned. The others are dropped.
pub async fn first<F: Future>(futures: impl IntoIterator<Item = F>) -> (usize, F::Output) {
    let mut all: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        for (i, f) in all.iter_mut().enumerate() {
            if let Poll::Ready(v) = f.as_mut().poll(cx) {
                return Poll::Ready((i, v));
            }
        }
        Poll::Pending
    })
    .await
}

/// Polls the task, and keeps it if it waits.
pub fn poll(mut task: Task) -> Option<Outcome> {
    // Every end polls the task as a whole, so that nothing needs to be woken.
    match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(o) => Some(o),
        Poll::Pending => {
            STATE.with_borrow_mut(|s| s.task = Some(task));
            None
        }
    }
}

/// Takes the end of an operation, and continues.
pub fn resume(id: i32, code: i32) -> Option<Outcome> {
    let end = Failure::check(code);
    let task = STATE.with_borrow_mut(|s| {
        if let Some(e) = s.ends.get_mut(&id) {
            *e = Some(end);
        }
        s.task.take()
    });
    poll(task?)
}
