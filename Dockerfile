# A GPU runner's image: torch with CUDA, a C++ compiler, and cudal1-ci in an environment of its own.
#
#   docker build -t cudal1-ci .
#   docker run --gpus all --rm -v "$PWD:/project" cudal1-ci scan .
#
# TORCH names an image with the torch of your project; its interpreter runs the project's code.
ARG TORCH=pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel
FROM ${TORCH}

RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git python3-venv \
    && rm -rf /var/lib/apt/lists/*

COPY . /src
RUN python -m venv /opt/cudal1-ci \
    && /opt/cudal1-ci/bin/pip install --no-cache-dir --constraint /src/constraints.txt /src \
    && ln -s /opt/cudal1-ci/bin/cudal1-ci /usr/local/bin/cudal1-ci \
    && command -v python > /tmp/python \
    && ln -s "$(cat /tmp/python)" /usr/local/bin/project-python \
    && rm -rf /src /tmp/python

# The image's own interpreter has torch; a project with an environment of its own names it by --python.
ENV CUDAL1_CI_PYTHON=/usr/local/bin/project-python
RUN useradd --create-home runner && mkdir /project && chown runner /project
USER runner
WORKDIR /project
ENTRYPOINT ["cudal1-ci"]
CMD ["doctor"]
