# rlbench as an image; docs/docker.md says how to build and run it.
# torch's wheel brings its CUDA libraries, so the smallest CUDA base will do. Any Debian or Ubuntu with
# Python >= 3.11 will too, pinned by digest if you like: --build-arg BASE_IMAGE=name@sha256:...
ARG BASE_IMAGE=nvidia/cuda:13.0.2-base-ubuntu24.04

FROM ${BASE_IMAGE} AS builder
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# apt's packages stay in the cache mount, not in a layer.
RUN rm -f /etc/apt/apt.conf.d/docker-clean
# No version of a system package is pinned: which ones there are is the base image's to say.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv
WORKDIR /opt/rlbench/app
RUN python3 -m venv /opt/rlbench/venv
# `--build-arg PIP_NO_INDEX=1` takes wheels from container/wheelhouse alone: a build without a network.
ARG PIP_NO_INDEX=
ENV PATH=/opt/rlbench/venv/bin:$PATH PIP_FIND_LINKS=/wheelhouse
# The two install lines are those of `make setup`; tests/test_container.py compares them.
COPY requirements.lock ./
# pip's cache is a mount too.
# hadolint ignore=DL3042
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=container/wheelhouse,target=/wheelhouse \
    pip install --quiet --disable-pip-version-check --requirement requirements.lock

FROM ${BASE_IMAGE}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN rm -f /etc/apt/apt.conf.d/docker-clean
# g++, Python's headers and openssl (for its checksums) stay: torch.compile translates the gradient
# steps to C++ when a run starts.
# tini passes signals on to every process, as Snakemake does not.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        g++ openssl python3 python3-dev tini \
    && rm -rf /var/log/apt /var/log/dpkg.log /var/cache/ldconfig/aux-cache
# Any user may write to /results, with or without a volume there.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp rlbench \
    && mkdir --mode 1777 /results
COPY --from=builder /opt/rlbench/venv /opt/rlbench/venv
# USER and HOME are for a --user that the image does not know. With NVIDIA_DISABLE_REQUIRE an old driver
# lets the container start: the CPU cells run, and rlbench says what is wrong.
ENV PATH=/opt/rlbench/venv/bin:$PATH \
    LANG=C.UTF-8 \
    USER=rlbench \
    HOME=/tmp \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_DISABLE_REQUIRE=1
WORKDIR /opt/rlbench/app
COPY LICENSE README.md Snakefile pyproject.toml requirements.lock ./
COPY config config
COPY profiles profiles
COPY workflow workflow
COPY src src
# hadolint ignore=DL3042
RUN pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . \
    && python -m compileall -q src \
    && ln -s /results results \
    && ln -s /results outputs \
    && chmod -R a+rX .
COPY --chmod=755 container/entrypoint /usr/local/bin/rlbench-entrypoint
ARG BASE_IMAGE
ARG GIT_COMMIT=unknown
ARG VERSION=0.1.0
ENV RLBENCH_GIT_COMMIT=${GIT_COMMIT}
LABEL org.opencontainers.image.title="rlbench" \
      org.opencontainers.image.description="A reproducible benchmark of on-policy trust-region reinforcement learning" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${GIT_COMMIT}"
# What is in the image, without dates: two images with the same contents have the same file.
RUN mkdir /etc/rlbench \
    && { printf 'base %s\nversion %s\ncommit %s\n' "${BASE_IMAGE}" "${VERSION}" "${GIT_COMMIT}"; \
         dpkg-query --show --showformat 'deb ${Package}:${Architecture} ${Version}\n' | LC_ALL=C sort; \
         pip --disable-pip-version-check list --format freeze | sed 's/^/pip /' | LC_ALL=C sort; \
       } > /etc/rlbench/image.txt
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "-s", "-g", "--", "rlbench-entrypoint"]
