#![allow(clippy::unwrap_used)]
mod support;
use plan::Desired;
use plan::model::{Luck, World};
use support::Run;
#[test]
fn perf() {
    for (n, r) in [(10u16, 1u16), (50, 1), (100, 1)] {
        let mut run = Run::new(Desired::cluster(n, r), World::new(true, true), Luck::good());
        run.limits.meets = 20000;
        let t = std::time::Instant::now();
        run.world.provide(&run.desired);
        run.world.tick(&mut run.luck);
        let o = run.world.observe();
        let t1 = std::time::Instant::now();
        let p = plan::plan(&run.desired, &o, &run.limits);
        println!("{n}: create plan {:?} steps {}", t1.elapsed(), p.steps.len());
        let t1 = std::time::Instant::now();
        for s in &p.steps {
            run.world.obey(s, &mut run.luck);
        }
        println!("obey {:?}", t1.elapsed());
        let t1 = std::time::Instant::now();
        run.tick(3);
        println!("3 ticks {:?}", t1.elapsed());
        for _ in 0..4 {
            let o = run.world.observe();
            let p = plan::plan(&run.desired, &o, &run.limits);
            for s in &p.steps {
                run.world.obey(s, &mut run.luck);
            }
            run.tick(1);
        }
        let o = run.world.observe();
        let t1 = std::time::Instant::now();
        let p = plan::plan(&run.desired, &o, &run.limits);
        println!("quiet {} plan {:?}; total {:?}", p.is_satisfied(), t1.elapsed(), t.elapsed());
        let mut d = run.desired.clone();
        d.shards += 2;
        let t1 = std::time::Instant::now();
        let pv = plan::preview(&d, &o, &run.limits, 100);
        println!("preview {:?} {} rounds {} steps", t1.elapsed(), pv.rounds, pv.steps);
    }
}
