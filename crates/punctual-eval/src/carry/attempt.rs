//! A run that may go wrong: what then is told, and nothing else stops.

use std::{
    any::Any,
    cell::RefCell,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::Once,
};

use super::{
    CarryError, Stage,
    ledger::{Ledger, nanos},
    run,
};
use crate::{
    experiment::Contender,
    record::{Ended, FlowRow, PathRow, RunRecord},
};

/// Runs a stage with a contender; see [`run`]. If that fails, or a part of it panics, the record says why, and has no block taken:
/// who does not come through has brought nothing.
pub fn attempt(stage: &Stage, contender: &Contender, seed: u64) -> RunRecord {
    match catch(|| run(stage, contender, seed)) {
        Ok(Ok(record)) => record,
        Ok(Err(error @ CarryError::Handshake(_))) => {
            let ended = Some(Ended { at: 0, why: error.to_string() });
            RunRecord { ended, ..failed(stage, contender, error.to_string()) }
        }
        Ok(Err(error)) => failed(stage, contender, error.to_string()),
        Err(panic) => failed(stage, contender, panic),
    }
}

fn failed(stage: &Stage, contender: &Contender, why: String) -> RunRecord {
    let ledger = Ledger::new(stage, &stage.plan);
    let mut entries = ledger.lock();
    RunRecord {
        failure: Some(why),
        sources: stage.plan.sources.iter().map(|source| source.name.clone()).collect(),
        paths: stage.paths.iter().map(|path| PathRow { cost: path.cost, ..PathRow::default() }).collect(),
        flows: vec![FlowRow { name: contender.name.clone(), ..FlowRow::default() }],
        reply: stage.reply.as_ref().map(|plan| FlowRow { blocks: plan.blocks.len() as u64, ..FlowRow::default() }),
        blocks: std::mem::take(&mut entries.rows),
        arrivals: std::mem::take(&mut entries.arrivals),
        queue: std::mem::take(&mut entries.queue),
        queue_wait: std::mem::take(&mut entries.queue_wait),
        duration: nanos(stage.duration),
        ..RunRecord::default()
    }
}

thread_local! {
    /// What the panic said that is being caught on this thread; `None` if none is to be caught.
    static TOLD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `act`. A panic in it is returned as its message and place instead of being printed.
fn catch<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let caught = TOLD.with_borrow_mut(|told| told.as_mut().map(|told| *told = describe(info)).is_some());
            if !caught {
                usual(info);
            }
        }));
    });
    TOLD.set(Some(String::new()));
    // Nothing that was inside is looked at again.
    let result = panic::catch_unwind(AssertUnwindSafe(act));
    let told = TOLD.take().unwrap_or_default();
    result.map_err(|_| told)
}

/// What a panic says, in a line, and where it is: a crate and a file in it, wherever that lies on this machine.
fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = text(info.payload()).lines().next().unwrap_or_default().to_owned();
    let Some(place) = info.location() else { return message };
    let (file, line) = (place.file().replace('\\', "/"), place.line());
    let begin = file.rfind("/src/").and_then(|src| file[..src].rfind('/')).map_or(0, |slash| slash + 1);
    format!("panicked: {message} ({}:{line})", &file[begin..])
}

fn text(payload: &dyn Any) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "something",
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::{
        BlockId,
        schedule::{BlockScheduler, BlockView, SendContext},
    };

    use super::*;
    use crate::{experiment::Experiment, files::Files, registry::Registry};

    /// A scheduler that is at its wits' end with the first block.
    struct Fragile;

    impl BlockScheduler for Fragile {
        fn name(&self) -> &'static str {
            "fragile"
        }

        fn insert(&mut self, _: &BlockView) {
            panic!("no room\nfor anything");
        }

        fn remove(&mut self, _: BlockId) {}

        fn next(&mut self, _: &SendContext<'_>) -> Option<BlockId> {
            None
        }
    }

    fn attempted(contender: &str, more: &str) -> RunRecord {
        let registry = Registry::new().scheduler("fragile", || Fragile).unwrap();
        let text = format!(
            "title = 'x'\nduration = '1s'\ncontenders = ['{contender}']\n[[path]]\nrate = '8 Mbit/s'\n{more}\n\
             [[workload]]\nsize = 3000\nevery = '100ms'\ndeadline = '80ms'"
        );
        let cell = Experiment::parse_with("x", &text, &registry).unwrap().cells().unwrap().remove(0);
        attempt(&Stage::new(&cell.setup, &Files::default(), 1).unwrap(), &cell.contender, 1)
    }

    #[test]
    fn who_panics_has_brought_nothing() {
        let record = attempted("fragile", "cost = 2");
        let why = record.failure.unwrap();
        assert!(why.starts_with("panicked: no room (") && why.contains("src/carry/attempt.rs:"), "{why}");
        assert_eq!(
            (record.blocks.len(), record.blocks.iter().filter(|block| block.delivered.is_some()).count()),
            (10, 0)
        );
        assert_eq!((record.paths[0].cost, record.duration), (2.0, 1_000_000_000));
    }

    #[test]
    fn who_gets_through_is_not_touched() {
        let record = attempted("ads", "");
        assert_eq!(record.failure, None);
        assert!(record.blocks.iter().all(|block| block.on_time()));
    }

    #[test]
    fn what_goes_wrong_elsewhere_is_not_caught() {
        assert_eq!(catch(|| 1), Ok(1));
        let own = catch(|| std::thread::spawn(|| TOLD.with_borrow(Option::is_none)).join().unwrap_or(false));
        assert_eq!(own, Ok(true));
        assert!(TOLD.with_borrow(Option::is_none));
    }
}
