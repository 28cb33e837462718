"""Learning runs: one process per cell, as many side by side as --cores allows."""


rule train:
    output:
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "run.json",
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "updates.parquet",
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "episodes.parquet",
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "evaluations.parquet",
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "resources.parquet",
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "policy.pt",
        RESULTS / "runs" / CELL_SPACE.wildcard_pattern / "best_policy.pt",
    log:
        RESULTS / "logs" / "train" / CELL_SPACE.wildcard_pattern / "train.log",
    threads: cell_threads
    resources:
        gpu=gpus,
        mem_mb=train_memory_mb,
        runtime=train_minutes,
    params:
        job=job_json,
        folder=subpath(output[0], parent=True),
        state=str(RESULTS / "state" / CELL_SPACE.wildcard_pattern),
    shell:
        "rlbench train --job {params.job:q} --output-dir {params.folder:q} "
        "--state-dir {params.state:q} > {log:q} 2>&1"
