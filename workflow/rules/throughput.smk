"""Speed: short runs, each alone on the machine; the only source of steps per second."""


rule throughput:
    output:
        RESULTS / "throughput" / ARM_SPACE.wildcard_pattern / "run.json",
        RESULTS / "throughput" / ARM_SPACE.wildcard_pattern / "timings.parquet",
        RESULTS / "throughput" / ARM_SPACE.wildcard_pattern / "resources.parquet",
    log:
        RESULTS / "logs" / "throughput" / ARM_SPACE.wildcard_pattern / "throughput.log",
    threads: whole_machine
    resources:
        gpu=gpus,
        mem_mb=throughput_memory_mb,
        runtime=throughput_minutes,
        slurm_extra="--exclusive",  # the whole node, as here the whole machine
    params:
        job=throughput_json,
        folder=subpath(output[0], parent=True),
        state=str(RESULTS / "state" / ARM_SPACE.wildcard_pattern),
    shell:
        "rlbench throughput --job {params.job:q} --output-dir {params.folder:q} "
        "--state-dir {params.state:q} > {log:q} 2>&1"
