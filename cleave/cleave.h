#pragma once

// All a program needs: describe a model, plan it, train it, save it. These
// headers, and those that they include, are the ones that are installed.
#include <torch/torch.h>

#include "cleave/checkpoint/safetensors.h"
#include "cleave/comm/world.h"
#include "cleave/data/dataset.h"
#include "cleave/data/sources.h"
#include "cleave/device/device.h"
#include "cleave/error.h"
#include "cleave/evaluate/evaluate.h"
#include "cleave/model/families/families.h"
#include "cleave/model/loss.h"
#include "cleave/model/model.h"
#include "cleave/model/network.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/measure/measured_plan.h"
#include "cleave/plan/plan.h"
#include "cleave/report/console.h"
#include "cleave/report/jsonl.h"
#include "cleave/report/plan_table.h"
#include "cleave/train/trainer.h"
