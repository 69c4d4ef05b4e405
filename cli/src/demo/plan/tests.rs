use super::*;

fn content(capacity: u64) -> Content {
    Content {
        source: "source".into(),
        source_len: 1,
        path: "path".into(),
        capacity,
        compresses: true,
    }
}

#[test]
fn every_block_is_visited_at_least_twice() {
    for workers in [1, 2, 3] {
        for blocks_per_io in [1, 4] {
            let options = Options {
                layout: LayoutChoice::All,
                workers,
                blocks_per_io,
                ..Options::default()
            };
            let plan = Plan::new(&options, &content(4096 * 4 * 100)).expect("a plan");
            for run in plan.runs() {
                let blocks =
                    u64::from(run.operations) * u64::from(workers) * u64::from(blocks_per_io);
                assert!(blocks >= 2 * plan.block_count, "{run:?}");
            }
        }
    }
}

#[test]
fn region_smaller_than_one_io_per_worker_is_refused() {
    let options = Options {
        workers: 2,
        local_io_region_size: 4096,
        ..Options::default()
    };
    let error = Plan::new(&options, &content(1 << 20))
        .expect_err("refused")
        .to_string();
    assert!(error.contains("at least 8192 bytes"), "{error}");
}

#[test]
fn block_sizes_that_cannot_be_halved_are_refused() {
    let options = |layout| Options {
        layout,
        block_size: 576,
        ..Options::default()
    };
    Plan::new(&options(LayoutChoice::ZeroCopy), &content(576 * 100)).expect("a plan");
    for layout in [LayoutChoice::Gga, LayoutChoice::All] {
        let error = Plan::new(&options(layout), &content(576 * 100))
            .expect_err("refused")
            .to_string();
        assert!(error.contains("a multiple of 128"), "{error}");
    }
}

#[test]
fn recoveries_are_counted_by_each_worker() {
    let options = Options {
        layout: LayoutChoice::Gga,
        workers: 2,
        blocks_per_io: 8,
        ..Options::default()
    };
    let plan = Plan::new(&options, &content(4096 * 8 * 2 * 5)).expect("a plan");
    let recoveries: Vec<u64> = plan
        .runs()
        .iter()
        .map(|run| plan.expected(run).recoveries)
        .collect();
    // Each worker reads 80 blocks: ten I/Os of eight.
    assert_eq!(recoveries, [160, 80, 16, 52, 52, 52]);
    let writes = plan.expected(&plan.runs()[3]);
    assert_eq!(writes.operations, 20);
    assert_eq!(writes.service_ios, 40);
    assert_eq!(writes.target_ios, 20 * 8 * 5);
}

#[test]
fn incompressible_content_gets_larger_stored_blocks() {
    let options = Options {
        layout: LayoutChoice::Gga,
        ..Options::default()
    };
    let mut content = content(1 << 20);
    let sizes = |content: &Content| {
        let plan = Plan::new(&options, content).expect("a plan");
        let of = |run: Run| match run.layout {
            Layout::Gga(gga) => gga.geometry.half_block_size(),
            Layout::ZeroCopy => panic!("{run:?}"),
        };
        plan.runs().into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&content), [2048, 2048, 2048, 2048, 2048, 2112]);
    content.compresses = false;
    assert_eq!(sizes(&content), [2112; 6]);
}
