// qkv/qkv.h: all of qkv.
#pragma once

#include <qkv/attend.h>
#include <qkv/attend_backward.h>
#include <qkv/attend_jvp.h>
#include <qkv/attend_op.h>
#include <qkv/autograd.h>
#include <qkv/cache.h>
#include <qkv/dtype.h>
#include <qkv/error.h>
#include <qkv/gemm.h>
#include <qkv/io.h>
#include <qkv/isa.h>
#include <qkv/mask.h>
#include <qkv/masked_softmax.h>
#include <qkv/merge.h>
#include <qkv/nn.h>
#include <qkv/ops.h>
#include <qkv/optim.h>
#include <qkv/plot.h>
#include <qkv/prepared.h>
#include <qkv/score.h>
#include <qkv/tensor.h>
#include <qkv/threads.h>
#include <qkv/version.h>
#include <qkv/weigh.h>
