# Two images: docker build --target cpu .   and   docker build --target cuda .
# Usage: docker run --rm -it -v "$PWD:/work" p3s train CartPole-v1
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:${PYTHON}-slim-bookworm AS base
# MuJoCo draws without a screen through EGL, in software. Debian's stable versions are not pinned:
# old ones leave its archive.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes libegl1 libgl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*
ENV MUJOCO_GL=egl
# HOME has the cache of compiled programs and the key that signs runs: mount it to keep them.
RUN useradd --create-home --uid 1000 p3s && install --directory --owner p3s /work
WORKDIR /work
ENTRYPOINT ["p3s"]
CMD ["--help"]

FROM base AS cpu
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    python -m pip install --no-cache-dir \
    "$(echo /wheel/p3s-*.whl)[mujoco,box2d,video,study,tb,export,tune,hub]"
USER 1000

# jax brings CUDA's libraries along; the machine needs NVIDIA's driver and container toolkit.
FROM base AS cuda
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    python -m pip install --no-cache-dir \
    "$(echo /wheel/p3s-*.whl)[mujoco,box2d,video,study,tb,export,tune,hub,cuda]"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
